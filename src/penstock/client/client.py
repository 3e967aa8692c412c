"""The client: one cluster, and what can be done with it.

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

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from penstock.client.admin.admin import Admin
from penstock.client.bootstrap import parse_bootstrap
from penstock.client.cluster import Cluster
from penstock.client.consumer import Consumer
from penstock.client.groups.admin import Groups
from penstock.client.groups.consumer import GroupConsumer
from penstock.client.producer.producer import Producer
from penstock.world import World


class Client:
    """ValueError for a bootstrap list that cannot be read; ConnectionFailed when no broker
    answers."""

    def __init__(
        self,
        world: World,
        bootstrap: str,
        *,
        client_id: str = "penstock",
        request_timeout_s: float = 30.0,
    ) -> None:
        self.cluster = Cluster(
            world,
            parse_bootstrap(bootstrap),
            client_id=client_id,
            request_timeout_s=request_timeout_s,
        )
        self.admin = Admin(self.cluster)
        self.groups = Groups(self.cluster)

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
        """To be entered with `async with`; the options are those of `Producer`."""
        return Producer(self.cluster, **options)

    def consumer(self, **options: Any) -> Consumer:
        """The options are those of `Consumer`."""
        return Consumer(self.cluster, **options)

    def group_consumer(self, group_id: str, topics: Sequence[str], **options: Any) -> GroupConsumer:
        """The options are those of `GroupConsumer`."""
        return GroupConsumer(self.cluster, group_id, topics, **options)
