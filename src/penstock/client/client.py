"""The client's entry point, with producers, consumers and administration.

async with Client(world, "localhost:9092") as client:
    await client.admin.create_topic("events", partitions=3)
    async with client.producer() as producer:
        await (await producer.send("events", b"hello"))
    async with client.consumer() as consumer:
        await consumer.assign({TopicPartition("events", 0): BEGINNING})
        async for record in consumer:
            ...
    async with client.group_consumer("billing", ["events"]) as consumer:
        async for record in consumer:
            ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from penstock.client.admin.admin_client import AdminClient
from penstock.client.admin.groups import GroupAdmin
from penstock.client.bootstrap import parse_bootstrap
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.group_consumer import GroupConsumer
from penstock.client.producer.producer import Producer
from penstock.world import World


class Client:
    """Raises ValueError for an invalid bootstrap list, and ConnectionFailed if no broker responds.
    With `controllers` the bootstrap servers are controllers, for `admin` alone (KIP-919).
    `security` has security.protocol, ssl.* and sasl.* by the names of Kafka's clients; other names
    in it are ignored. Raises InvalidSecurity for unusable ones."""

    def __init__(
        self,
        world: World,
        bootstrap: str,
        *,
        client_id: str = "penstock",
        request_timeout_s: float = 30.0,
        api_timeout_s: float | None = None,
        controllers: bool = False,
        security: Mapping[str, str] | None = None,
    ) -> None:
        if security:
            # Imported here, so that a client without it starts quickly.
            from penstock.client.security import secured

            world = secured(world, security)
        self.cluster = Cluster(
            world,
            parse_bootstrap(bootstrap),
            client_id=client_id,
            request_timeout_s=request_timeout_s,
            api_timeout_s=api_timeout_s,
            controllers=controllers,
        )
        self.admin = AdminClient(self.cluster)
        self.groups = GroupAdmin(self.cluster)

    async def __aenter__(self) -> Client:
        try:
            await self.cluster.open()
        except BaseException:
            self.cluster.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cluster.close()

    def producer(self, **options: Any) -> Producer:
        """Return a producer, to be entered with `async with`; takes the options of `Producer`."""
        return Producer(self.cluster, **options)

    def consumer(self, **options: Any) -> Consumer:
        """Return a consumer without a group; takes the options of `Consumer`."""
        return Consumer(self.cluster, **options)

    def group_consumer(self, group_id: str, topics: Sequence[str], **options: Any) -> GroupConsumer:
        """Return a member of a consumer group; takes the options of `GroupConsumer`."""
        return GroupConsumer(self.cluster, group_id, topics, **options)
