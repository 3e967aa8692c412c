"""The brokers of a cluster as a client reaches them: a connection to each, made when first needed,
and metadata kept up to date.

Must never know what is produced, consumed or administered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from penstock.client.connection import Connection, open_connection
from penstock.client.faults import ConnectionFailed
from penstock.client.metadata import Metadata, PartitionInfo, TopicInfo, check_topics, no_leader
from penstock.client.retry import retrying
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.world import World

T = TypeVar("T")

# A broker that takes longer to accept a connection and to say its versions is taken for dead.
CONNECT_TIMEOUT_S = 10.0


class Cluster:
    def __init__(
        self,
        world: World,
        bootstrap: Sequence[tuple[str, int]],
        *,
        client_id: str,
        request_timeout_s: float,
    ) -> None:
        self.world = world
        self.metadata = Metadata()
        self.request_timeout_s = request_timeout_s
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._connections: dict[tuple[str, int], Connection] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}

    async def open(self) -> None:
        """Learns the brokers from the first bootstrap server that answers; there is no second
        try."""
        await self._ask_metadata(MetadataRequest(topics=(), allow_auto_topic_creation=False))

    async def retry(self, attempt: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        return await retrying(
            self.world, attempt, self.request_timeout_s if timeout_s is None else timeout_s
        )

    async def call(self, request: object, response: type[T]) -> T:
        """Asks any broker."""
        return await (await self.any_broker()).call(request, response)

    async def broker(self, node_id: int) -> Connection:
        broker = self.metadata.brokers.get(node_id)
        if broker is None:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster's metadata"
            )
        return await self._connect(broker.host, broker.port)

    async def any_broker(self) -> Connection:
        """One that is connected, or else the first that can be: known brokers in any order, then
        the bootstrap servers."""
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        known = [(one.host, one.port) for one in self.metadata.brokers.values()]
        begin = self.world.rng.randrange(len(known)) if known else 0
        problems = []
        for host, port in dict.fromkeys([*known[begin:], *known[:begin], *self._bootstrap]):
            try:
                return await self._connect(host, port)
            except ConnectionFailed as error:
                problems.append(error.message)
        raise ConnectionFailed("; ".join(problems))

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """From memory where it is known. With create, a broker that may makes the topic
        (auto.create.topics.enable)."""
        known = self.metadata.topics.get(name)
        if known is None:
            await self.retry(lambda: self.topics([name], create=create))
            known = self.metadata.topics[name]
        return known

    async def topics(self, names: Iterable[str] | None, *, create: bool = False) -> list[TopicInfo]:
        """Asked anew: these topics or, with None, all of them. An error of any is raised."""
        asked = None if names is None else tuple(MetadataRequest.Topic(name=name) for name in names)
        answer = await self._ask_metadata(
            MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        )
        if names is not None:
            check_topics(answer.topics)
        known = (
            self.metadata.topics[one.name]
            for one in answer.topics
            if one.error_code == 0 and one.name is not None
        )
        return sorted(known, key=lambda one: one.name)

    async def leader(self, partition: TopicPartition) -> tuple[TopicInfo, PartitionInfo]:
        """Who leads a partition, as far as is known; asked once when it is not. KafkaError where
        nobody does."""
        topic = (
            self.metadata.topics.get(partition.topic) or (await self.topics([partition.topic]))[0]
        )
        try:
            info = topic.partition(partition.partition)
        except KafkaError:
            self.metadata.forget(partition.topic)
            raise
        if info.leader < 0:
            self.metadata.forget(partition.topic)
            raise no_leader(partition)
        return topic, info

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _ask_metadata(self, request: MetadataRequest) -> MetadataResponse:
        answer = await self.call(request, MetadataResponse)
        self.metadata.take(answer)
        return answer

    async def _connect(self, host: str, port: int) -> Connection:
        """One connection to a broker, however many ask for it at once."""
        async with self._opening.setdefault((host, port), asyncio.Lock()):
            connection = self._connections.get((host, port))
            if connection is None or connection.closed:
                connection = await open_connection(
                    self.world,
                    host,
                    port,
                    client_id=self._client_id,
                    connect_timeout_s=min(CONNECT_TIMEOUT_S, self.request_timeout_s),
                    request_timeout_s=self.request_timeout_s,
                )
                self._connections[host, port] = connection
            return connection
