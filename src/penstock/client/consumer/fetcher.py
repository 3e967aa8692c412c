"""Fetcher with at most one fetch in flight per leader, without fetch sessions.

Owns the positions: a position advances when the records before it are returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.client.cluster import Cluster
from penstock.client.consumer.completed_fetch import ConsumerRecord, decode_records
from penstock.client.errors import check, error_of
from penstock.client.offsets import IsolationLevel
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, Buffer, TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse

# Fetch v13 identifies topics by id only.
_MAX_VERSION_BY_NAME = 12

PartitionData = FetchResponse.Response.Partition


@dataclass(frozen=True, slots=True)
class FetchConfig:
    isolation: IsolationLevel
    max_wait_s: float
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    check_crcs: bool


class _LeaderState(NamedTuple):
    """Sent with every fetch: a former leader may lack records that were already consumed, and
    would respond OFFSET_OUT_OF_RANGE instead of FENCED_LEADER_EPOCH (KIP-320)."""

    topic_id: UUID
    leader_epoch: int


class _InFlightFetch(NamedTuple):
    future: asyncio.Future[FetchResponse]
    positions: dict[TopicPartition, int]


class Fetcher:
    def __init__(self, cluster: Cluster, config: FetchConfig) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self._cluster = cluster
        self._config = config
        self._in_flight: dict[int, _InFlightFetch] = {}

    def close(self) -> None:
        for fetch in self._in_flight.values():
            fetch.future.cancel()
        self._in_flight.clear()

    async def send_fetches(self, failures: list[KafkaError]) -> None:
        """Send a fetch to every leader that has none in flight; collect errors in `failures`."""
        by_leader: dict[int, dict[TopicPartition, _LeaderState]] = {}
        for partition in self.positions:
            try:
                topic, info = await self._cluster.leader(partition)
                by_leader.setdefault(info.leader, {})[partition] = _LeaderState(
                    topic.id, info.leader_epoch
                )
            except KafkaError as error:
                failures.append(error)
        for leader, partitions in by_leader.items():
            if leader not in self._in_flight:
                try:
                    await self._send_fetch(leader, partitions)
                except KafkaError as error:
                    failures.append(error)
                    self._forget_leaders(partitions)

    async def collect(self, failures: list[KafkaError]) -> list[ConsumerRecord]:
        """Wait for the first fetch to complete and return the records of all that completed."""
        if not self._in_flight:
            if not failures:
                await asyncio.sleep(self._config.max_wait_s)
            return []
        await asyncio.wait(
            [fetch.future for fetch in self._in_flight.values()],
            return_when=asyncio.FIRST_COMPLETED,
        )
        records: list[ConsumerRecord] = []
        for leader, fetch in list(self._in_flight.items()):
            if fetch.future.done():
                del self._in_flight[leader]
                try:
                    response = fetch.future.result()
                    check(response.error_code, f"broker {leader} refused the fetch")
                except KafkaError as error:
                    failures.append(error)
                    self._forget_leaders(fetch.positions)
                else:
                    self._complete(response, fetch.positions, records, failures)
        return records

    async def _send_fetch(
        self, leader: int, partitions: Mapping[TopicPartition, _LeaderState]
    ) -> None:
        connection = await self._cluster.broker(leader)
        by_name = any(state.topic_id == NO_UUID for state in partitions.values())
        future = connection.send(
            self._request(partitions),
            FetchResponse,
            max_version=_MAX_VERSION_BY_NAME if by_name else None,
            timeout_s=self._config.max_wait_s + self._cluster.request_timeout_s,
        )
        self._in_flight[leader] = _InFlightFetch(
            future, {partition: self.positions[partition] for partition in partitions}
        )

    def _request(self, partitions: Mapping[TopicPartition, _LeaderState]) -> FetchRequest:
        config = self._config
        topics: dict[tuple[str, UUID], list[FetchRequest.Topic.Partition]] = {}
        for partition, (topic_id, leader_epoch) in partitions.items():
            fetch_partition = FetchRequest.Topic.Partition(
                partition=partition.partition,
                current_leader_epoch=leader_epoch,
                fetch_offset=self.positions[partition],
                partition_max_bytes=config.partition_max_bytes,
            )
            topics.setdefault((partition.topic, topic_id), []).append(fetch_partition)
        return FetchRequest(
            max_wait_ms=int(config.max_wait_s * 1000),
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            isolation_level=config.isolation,
            topics=tuple(
                FetchRequest.Topic(topic=name, topic_id=topic_id, partitions=tuple(fetched))
                for (name, topic_id), fetched in topics.items()
            ),
        )

    def _complete(
        self,
        response: FetchResponse,
        fetched: Mapping[TopicPartition, int],
        records: list[ConsumerRecord],
        failures: list[KafkaError],
    ) -> None:
        for topic in response.responses:
            name = self._cluster.metadata.name_of(topic.topic_id, topic.topic)
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if partition not in fetched or self.positions.get(partition) != fetched[partition]:
                    continue  # Not requested, or the position changed since.
                try:
                    records += self._decode(partition, data)
                except KafkaError as error:
                    failures.append(error)
                    self._forget_leaders([partition])

    def _decode(self, partition: TopicPartition, data: PartitionData) -> list[ConsumerRecord]:
        if data.error_code:
            raise self._error(partition, data.error_code)
        if not isinstance(data.records, Buffer):
            return []
        aborted = None
        if self._config.isolation is IsolationLevel.READ_COMMITTED:
            transactions = data.aborted_transactions or ()
            aborted = [(aborted.producer_id, aborted.first_offset) for aborted in transactions]
        records, self.positions[partition] = decode_records(
            partition,
            data.records,
            aborted,
            self.positions[partition],
            check_crcs=self._config.check_crcs,
        )
        return records

    def _error(self, partition: TopicPartition, code: int) -> KafkaError:
        if code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return error_of(code, f"cannot fetch {partition}")
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition} has no offset {self.positions[partition]}: "
            "its records were deleted, or it was not written yet",
        )

    def _forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._cluster.metadata.forget(partition.topic)
