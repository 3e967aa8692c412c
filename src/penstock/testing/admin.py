"""Topics of a test cluster, for callers that are not asynchronous.

It uses the listener between brokers, which has no faults: a test that fails CreateTopics still gets
its topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from penstock.client.client import Client
from penstock.client.connection import Connection
from penstock.client.errors import check
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.world import World
from penstock.world.real.thread import LoopThread, Running

T = TypeVar("T")
Partition = MetadataResponse.Topic.Partition

_REQUEST_TIMEOUT_S = 15.0
_POLL_S = 0.005
# A group may get a member, or end, after it was listed.
_KEPT = (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND)


class Admin:
    """`addresses` are the brokers' in the order of their ids."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._brokers: tuple[int, ...] = ()
        self._thread: LoopThread[World] = LoopThread(self._main)
        self._world = self._thread.start()
        self._client: Client | None = None

    async def _main(self, world: World, running: Running[World]) -> None:
        await running(world)
        await self._disconnect()

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(None, None, None)

    def use(self, brokers: tuple[int, ...]) -> None:
        """Ask only these brokers: others are down, or do not know what the majority does."""
        if brokers != self._brokers:
            self._brokers = brokers
            self._thread.submit(self._disconnect()).result()

    def close(self) -> None:
        self._thread.stop()

    def _run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return self._thread.submit(self._with_client(work)).result()

    async def _with_client(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        if self._client is None:
            servers = ",".join(self._addresses[broker - 1] for broker in self._brokers)
            client = Client(self._world, servers, request_timeout_s=_REQUEST_TIMEOUT_S)
            self._client = await client.__aenter__()
        return await work(self._client)

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
    ) -> None:
        """Create a topic, and wait until all brokers in use know the leaders of its partitions."""

        async def work(client: Client) -> None:
            await client.admin.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
            )
            await asyncio.gather(*(_wait_known(client, broker, name) for broker in self._brokers))

        self._run(work)

    def delete_topics(self, names: Collection[str]) -> None:
        if names:
            self._run(lambda client: _delete_topics(client, tuple(names)))

    def delete_groups(self, names: Collection[str]) -> None:
        """Delete those groups that exist and have no members."""

        async def work(client: Client) -> None:
            for group in await client.groups.list_groups():
                if group.id in names and group.state == "Empty":
                    try:
                        await client.groups.delete_group(group.id)
                    except KafkaError as error:
                        if error.code not in _KEPT:
                            raise

        self._run(work)

    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic as the brokers with the newest metadata know them: one
        that was paused may still know those of earlier."""

        async def work(client: Client) -> list[Partition]:
            newest: dict[int, Partition] = {}
            for view in await self._views(client, [topic]):
                for _name, partition in view:
                    other = newest.get(partition.partition_index, partition)
                    newest[partition.partition_index] = max(
                        other, partition, key=lambda known: known.leader_epoch
                    )
            return [partition for _index, partition in sorted(newest.items())]

        return self._run(work)

    def leaders(self, topic: str, index: int) -> set[int]:
        """Return who leads a partition, as each broker in use knows it."""

        async def work(client: Client) -> set[int]:
            views = await self._views(client, [topic])
            return {
                partition.leader_id
                for view in views
                for _name, partition in view
                if partition.partition_index == index
            }

        return self._run(work)

    async def _views(
        self, client: Client, topics: Collection[str] | None
    ) -> list[list[tuple[str, Partition]]]:
        """Return the partitions of topics, or of all topics, as each broker in use knows them."""
        request = MetadataRequest(
            topics=None
            if topics is None
            else tuple(MetadataRequest.Topic(name=topic) for topic in topics),
            allow_auto_topic_creation=False,
        )

        async def view(broker: int) -> list[tuple[str, Partition]]:
            response = await (await _connection(client, broker)).call(request, MetadataResponse)
            for topic in response.topics:
                check(topic.error_code, f"broker {broker} does not know topic {topic.name}")
            return [
                (topic.name or "", partition)
                for topic in response.topics
                for partition in topic.partitions
            ]

        return await asyncio.gather(*map(view, self._brokers))

    def under_replicated(self, topics: Collection[str] | None) -> list[str]:
        """Return the partitions without a leader, or with replicas that are not in sync, in words,
        as any broker knows them. A broker that does not answer is one more problem."""

        async def work(client: Client) -> list[str]:
            try:
                views = await self._views(client, topics)
            except KafkaError as error:
                return [str(error)]
            return [
                f"broker {broker}: {name}-{found.partition_index} has the replicas "
                f"{sorted(found.replica_nodes)}, of which {sorted(found.isr_nodes)} are in sync, "
                f"and leader {found.leader_id}"
                for broker, view in zip(self._brokers, views, strict=True)
                for name, found in view
                if found.leader_id < 0 or set(found.isr_nodes) != set(found.replica_nodes)
            ]

        return self._run(work)


async def _delete_topics(client: Client, names: tuple[str, ...]) -> None:
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicsRequest.Topic(name=name) for name in names),
        topic_names=names,
        timeout_ms=int(_REQUEST_TIMEOUT_S * 1000),
    )
    response = await client.cluster.call(request, DeleteTopicsResponse)
    for result in response.responses:
        if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            check(result.error_code, f"topic {result.name} was not deleted")
    for name in names:
        client.cluster.metadata.forget(name)


async def _connection(client: Client, broker: int) -> Connection:
    """Connect to a broker, as soon as the cluster knows it."""
    async with asyncio.timeout(_REQUEST_TIMEOUT_S):
        while broker not in client.cluster.metadata.brokers:
            await asyncio.sleep(_POLL_S)
            await client.cluster.open()  # fetches the brokers
        return await client.cluster.broker(broker)


async def _wait_known(client: Client, broker: int, topic: str) -> None:
    request = MetadataRequest(
        topics=(MetadataRequest.Topic(name=topic),), allow_auto_topic_creation=False
    )
    async with asyncio.timeout(_REQUEST_TIMEOUT_S):
        while True:
            connection = await _connection(client, broker)
            (found,) = (await connection.call(request, MetadataResponse)).topics
            if not found.error_code and all(
                partition.leader_id >= 0 for partition in found.partitions
            ):
                return
            await asyncio.sleep(_POLL_S)
