"""Connections to a cluster's brokers, opened on first use, and cached metadata.

A cluster can also be reached by its controllers (KIP-919): they serve what changes metadata, and
forward it to the active controller. Requests for records and groups need brokers.

Must not know about producing, consuming or administration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from penstock.client.bootstrap import Address, first_connection
from penstock.client.connection import Connection, open_connection
from penstock.client.errors import check, retry
from penstock.client.metadata import Metadata, PartitionInfo, TopicInfo, check_topics, no_leader
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.world import World

T = TypeVar("T")

# A broker that does not accept a connection and answer ApiVersions within this time is down.
CONNECT_TIMEOUT_S = 10.0
# A connection that was idle for this long is opened again before its next use. Brokers close idle
# connections after 10 minutes, and firewalls drop them in silence (Kafka's clients:
# connections.max.idle.ms).
CONNECTION_MAX_IDLE_S = 540.0
# A topic is fetched again after this time, and shows partitions that were added (Kafka's clients:
# metadata.max.age.ms).
METADATA_MAX_AGE_S = 300.0

# The endpoint types of DescribeCluster.
BROKERS, CONTROLLERS = 1, 2


class Cluster:
    def __init__(
        self,
        world: World,
        bootstrap: Sequence[Address],
        *,
        client_id: str,
        request_timeout_s: float,
        api_timeout_s: float | None = None,
        controllers: bool = False,
    ) -> None:
        """`api_timeout_s` bounds retries, and is the request timeout by default. It must be longer
        for a retry after a request that a frozen broker did not answer. With `controllers` the
        bootstrap servers are listeners of controllers, and the known brokers are controllers."""
        self.world = world
        self.endpoint_type = CONTROLLERS if controllers else BROKERS
        self.metadata = Metadata()
        self.request_timeout_s = request_timeout_s
        self._api_timeout_s = request_timeout_s if api_timeout_s is None else api_timeout_s
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
        # When each topic in `metadata` was fetched.
        self._fetched_s: dict[str, float] = {}

    async def open(self) -> None:
        """Fetch the list of brokers from the first bootstrap server that responds.

        Does not retry.
        """
        if self.endpoint_type == CONTROLLERS:
            request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
            response = await self.call(request, DescribeClusterResponse)
            check(response.error_code, response.error_message or "DescribeCluster failed")
            self.metadata.update_controllers(response)
            return
        await self._fetch_metadata(MetadataRequest(topics=(), allow_auto_topic_creation=False))

    async def retry(self, attempt: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        return await retry(
            self.world, attempt, self._api_timeout_s if timeout_s is None else timeout_s
        )

    async def call(self, request: object, response: type[T]) -> T:
        """Send a request to any broker and return its response."""
        connection = await self.any_broker()
        try:
            return await connection.call(request, response)
        except KafkaError as error:
            if self.endpoint_type == CONTROLLERS and error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise only_by_brokers(error.message) from error
            raise

    async def broker(self, node_id: int) -> Connection:
        broker = self.metadata.brokers.get(node_id)
        if broker is None and self.endpoint_type == CONTROLLERS:
            raise only_by_brokers(f"node {node_id} is not one of the controllers")
        if broker is None:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster's metadata"
            )
        return await self._connect(broker.host, broker.port)

    async def any_broker(self) -> Connection:
        """Return an open connection, or open one to a known broker or a bootstrap server.

        The known brokers are tried from a random one on, so that clients spread over them.
        """
        for connection in self._connections.values():
            if _is_usable(connection):
                return connection
        known = [(broker.host, broker.port) for broker in self.metadata.brokers.values()]
        first = self.world.rng.randrange(len(known)) if known else 0
        return await first_connection(
            [*known[first:], *known[:first], *self._bootstrap], self._connect
        )

    def finalized_feature(self, name: str) -> int:
        """Return a feature's level as the connection with the newest metadata knows it, or 0."""
        newest = max(
            self._connections.values(),
            key=lambda connection: connection.finalized_features_epoch,
            default=None,
        )
        return 0 if newest is None else newest.finalized_features.get(name, 0)

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """Return a topic from the cache, or fetch it.

        With `create`, the broker creates a missing topic if auto.create.topics.enable is on.
        """
        known = self.metadata.topics.get(name)
        if known is None or self._now() - self._fetched_s[name] >= METADATA_MAX_AGE_S:
            await self.retry(lambda: self.topics([name], create=create))
            known = self.metadata.topics[name]
        return known

    async def topics(self, names: Iterable[str] | None, *, create: bool = False) -> list[TopicInfo]:
        """Fetch these topics or, with None, all topics. Raises the first topic's error."""
        requested = (
            None if names is None else tuple(MetadataRequest.Topic(name=name) for name in names)
        )
        response = await self._fetch_metadata(
            MetadataRequest(topics=requested, allow_auto_topic_creation=create)
        )
        if names is not None:
            check_topics(response.topics)
        topics = (
            self.metadata.topics[topic.name]
            for topic in response.topics
            if topic.error_code == 0 and topic.name is not None
        )
        return sorted(topics, key=lambda topic: topic.name)

    async def leader(self, partition: TopicPartition) -> tuple[TopicInfo, PartitionInfo]:
        """Return a partition's topic and leader; fetches metadata once if it is not cached.

        Raises KafkaError if the partition does not exist or has no leader.
        """
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

    async def _fetch_metadata(self, request: MetadataRequest) -> MetadataResponse:
        response = await self.call(request, MetadataResponse)
        self.metadata.update(response)
        now = self._now()
        self._fetched_s |= {
            topic.name: now
            for topic in response.topics
            if topic.error_code == 0 and topic.name is not None
        }
        return response

    async def _connect(self, host: str, port: int) -> Connection:
        """Return the broker's connection; concurrent callers share one attempt to open it."""
        async with self._opening.setdefault((host, port), asyncio.Lock()):
            connection = self._connections.get((host, port))
            if connection is None or not _is_usable(connection):
                if connection is not None:
                    connection.close()
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

    def _now(self) -> float:
        return self.world.clock.monotonic()


def only_by_brokers(reason: str) -> KafkaError:
    """Return the error of a request that controllers do not serve, with the text of Kafka's
    clients."""
    return KafkaError(
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        "This Admin API is not yet supported when communicating directly with the controller "
        f"quorum: {reason}. Give brokers instead of controllers as bootstrap servers",
    )


def _is_usable(connection: Connection) -> bool:
    return not connection.closed and connection.idle_s < CONNECTION_MAX_IDLE_S
