"""Send requests to a partition's leader, or to the coordinator of a group or a transaction.

Both are looked up, remembered, and looked up again after a broker refuses or disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import IntEnum
from typing import TypeVar

from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.errors import ConnectionFailed, check
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")
PartitionResults = Mapping[TopicPartition, T | KafkaError]
SendToLeader = Callable[[Connection, list[TopicPartition]], Awaitable[PartitionResults[T]]]
SendToCoordinator = Callable[[Connection], Awaitable[T]]

_COORDINATOR_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
# FindCoordinator v4 replaces the single key by a list.
_FIND_COORDINATOR_MAX_VERSION = 3


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


def by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, []).append(index)
    return grouped


async def send_to_leaders(
    cluster: Cluster, partitions: Collection[TopicPartition], send: SendToLeader[T]
) -> dict[TopicPartition, T]:
    """Return one result per partition, sending one request to each leader.

    Partitions with a retriable error are sent again; the first other error is raised.
    """
    results: dict[TopicPartition, T] = {}

    async def attempt() -> None:
        missing = [partition for partition in partitions if partition not in results]
        await _send_once(cluster, missing, send, results)

    await cluster.retry(attempt)
    return {partition: results[partition] for partition in partitions}


async def _send_once(
    cluster: Cluster,
    missing: list[TopicPartition],
    send: SendToLeader[T],
    results: dict[TopicPartition, T],
) -> None:
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in missing:
        _topic, info = await cluster.leader(partition)
        by_leader.setdefault(info.leader, []).append(partition)
    responses = await asyncio.gather(
        *(_send_to_leader(cluster, leader, led, send) for leader, led in by_leader.items())
    )
    failures: list[KafkaError] = []
    for response in responses:
        for partition, result in response.items():
            if isinstance(result, KafkaError):
                failures.append(result)
                cluster.metadata.forget(partition.topic)
            else:
                results[partition] = result
    if failures:
        raise min(failures, key=lambda error: error.code.retriable)


async def _send_to_leader(
    cluster: Cluster, leader: int, partitions: list[TopicPartition], send: SendToLeader[T]
) -> PartitionResults[T]:
    try:
        return await send(await cluster.broker(leader), partitions)
    except ConnectionFailed as error:
        return dict.fromkeys(partitions, error)


class Coordinators:
    """Caches the coordinator of each group or transactional id until that broker refuses or
    disconnects."""

    def __init__(self, cluster: Cluster, kind: CoordinatorType = CoordinatorType.GROUP) -> None:
        self.cluster = cluster
        self._kind = kind
        self._cached: dict[str, int] = {}

    def cached(self, key: str) -> int | None:
        """Return the broker that executed the key's last request, unless it refused."""
        return self._cached.get(key)

    async def send(self, key: str, send: SendToCoordinator[T]) -> T:
        """Send to the coordinator of a group or transactional id, retrying retriable errors."""
        return await self.cluster.retry(lambda: self.send_once(key, send))

    async def send_once(self, key: str, send: SendToCoordinator[T]) -> T:
        """Send to the coordinator without retrying.

        A broker that is no longer the coordinator is removed from the cache, so that the next
        call looks the coordinator up.
        """
        try:
            if key not in self._cached:
                self._cached[key] = await self._find(key)
            return await send(await self.cluster.broker(self._cached[key]))
        except KafkaError as error:
            if error.code in _COORDINATOR_MOVED or isinstance(error, ConnectionFailed):
                self._cached.pop(key, None)
            raise

    async def _find(self, key: str) -> int:
        connection = await self.cluster.any_broker()
        response = await connection.call(
            FindCoordinatorRequest(key=key, key_type=self._kind),
            FindCoordinatorResponse,
            max_version=_FIND_COORDINATOR_MAX_VERSION,
        )
        noun = "group" if self._kind is CoordinatorType.GROUP else "transactional id"
        check(
            response.error_code,
            response.error_message or f"{noun} {key} has no coordinator at present",
        )
        if response.node_id not in self.cluster.metadata.brokers:
            await self.cluster.topics([])
        return response.node_id
