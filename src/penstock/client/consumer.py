"""A consumer of partitions that it was given: no group, no fetch session. One fetch is in flight
per leader; positions are kept here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple
from uuid import UUID

from penstock.client.cluster import Cluster
from penstock.client.faults import check, error_of
from penstock.client.isolation import shown_batches
from penstock.client.offsets import EARLIEST, LATEST, Isolation, list_offsets
from penstock.client.retry import Backoff
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, Buffer, TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.records.record import Headers, rows_of

# From v13 on, topics are named by id alone.
_LAST_BY_NAME = 12


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Since:
    """The first record that is not older than this, in milliseconds; the end where there is
    none."""

    timestamp: int


BEGINNING = Since(EARLIEST)
END = Since(LATEST)
Start = int | Since


class _Known(NamedTuple):
    """The epoch goes with every fetch: a broker that leads no more might have less than was read,
    and would call that out of range."""

    topic_id: UUID
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchSettings:
    isolation: Isolation
    max_wait_s: float
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    check_crcs: bool


class Consumer:
    """`async for record in consumer` after `await consumer.assign({partition: BEGINNING})`; or
    `poll` for lists."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        max_wait_s: float = 0.5,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        check_crcs: bool = True,
    ) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self._cluster = cluster
        self._settings = FetchSettings(
            isolation, max_wait_s, min_bytes, max_bytes, partition_max_bytes, check_crcs
        )
        self._in_flight: dict[
            int, tuple[asyncio.Future[FetchResponse], dict[TopicPartition, int]]
        ] = {}
        self._backoff = Backoff(cluster.world.rng)
        self._failing_since: float | None = None
        self._fatal: KafkaError | None = None

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for future, _asked in self._in_flight.values():
            future.cancel()
        self._in_flight.clear()

    async def assign(self, starts: Mapping[TopicPartition, Start]) -> None:
        """What is read from here on, and from where. Replaces what was assigned before."""
        asked = {
            partition: start.timestamp
            for partition, start in starts.items()
            if isinstance(start, Since)
        }
        found = await list_offsets(self._cluster, asked, self._settings.isolation) if asked else {}
        late = [partition for partition, one in found.items() if one.offset < 0]
        ends = (
            await list_offsets(self._cluster, dict.fromkeys(late, LATEST), self._settings.isolation)
            if late
            else {}
        )
        offsets = {partition: one.offset for partition, one in {**found, **ends}.items()}
        self.close()
        self.positions = {
            one: offsets[one] if isinstance(start, Since) else start
            for one, start in starts.items()
        }

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """Where each assigned partition ends now: the last stable offset with read_committed."""
        found = await list_offsets(
            self._cluster, dict.fromkeys(self.positions, LATEST), self._settings.isolation
        )
        return {partition: one.offset for partition, one in found.items()}

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            for record in await self.poll():
                yield record

    async def poll(self) -> list[ConsumerRecord]:
        """What came in, after at most about max_wait_s; may be nothing. Trouble that may pass is
        waited out, for as long as a request may take; the rest raises KafkaError, after the records
        that came with it were given."""
        if self._fatal is not None:
            fatal, self._fatal = self._fatal, None
            raise fatal
        failures: list[KafkaError] = []
        await self._ask(failures)
        records = await self._hear(failures)
        if failures:
            await self._trouble(min(failures, key=lambda one: one.code.retriable), idle=not records)
        else:
            self._failing_since = None
            self._backoff.reset()
        return records

    async def _ask(self, failures: list[KafkaError]) -> None:
        """A fetch to every leader that has none in flight."""
        by_leader: dict[int, dict[TopicPartition, _Known]] = {}
        for partition in self.positions:
            try:
                topic, info = await self._cluster.leader(partition)
                by_leader.setdefault(info.leader, {})[partition] = _Known(
                    topic.id, info.leader_epoch
                )
            except KafkaError as error:
                failures.append(error)
        for leader, partitions in by_leader.items():
            if leader not in self._in_flight:
                try:
                    await self._fetch(leader, partitions)
                except KafkaError as error:
                    failures.append(error)
                    self._forget(partitions)

    async def _fetch(self, leader: int, partitions: Mapping[TopicPartition, _Known]) -> None:
        connection = await self._cluster.broker(leader)
        ceiling = (
            _LAST_BY_NAME
            if any(known.topic_id == NO_UUID for known in partitions.values())
            else None
        )
        timeout_s = self._settings.max_wait_s + self._cluster.request_timeout_s
        future = connection.send(
            self._request(partitions), FetchResponse, ceiling=ceiling, timeout_s=timeout_s
        )
        self._in_flight[leader] = future, {one: self.positions[one] for one in partitions}

    def _request(self, partitions: Mapping[TopicPartition, _Known]) -> FetchRequest:
        settings = self._settings
        topics: dict[tuple[str, UUID], list[FetchRequest.Topic.Partition]] = {}
        for one, (topic_id, leader_epoch) in partitions.items():
            fetched = FetchRequest.Topic.Partition(
                partition=one.partition,
                current_leader_epoch=leader_epoch,
                fetch_offset=self.positions[one],
                partition_max_bytes=settings.partition_max_bytes,
            )
            topics.setdefault((one.topic, topic_id), []).append(fetched)
        return FetchRequest(
            max_wait_ms=int(settings.max_wait_s * 1000),
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=settings.isolation,
            topics=tuple(
                FetchRequest.Topic(topic=name, topic_id=topic_id, partitions=tuple(these))
                for (name, topic_id), these in topics.items()
            ),
        )

    async def _hear(self, failures: list[KafkaError]) -> list[ConsumerRecord]:
        if not self._in_flight:
            if not failures:
                await asyncio.sleep(self._settings.max_wait_s)
            return []
        await asyncio.wait(
            [future for future, _asked in self._in_flight.values()],
            return_when=asyncio.FIRST_COMPLETED,
        )
        records: list[ConsumerRecord] = []
        for leader, (future, asked) in list(self._in_flight.items()):
            if future.done():
                del self._in_flight[leader]
                try:
                    answer = future.result()
                    check(answer.error_code, "the fetch was refused")
                except KafkaError as error:
                    failures.append(error)
                    self._forget(asked)
                else:
                    self._take(answer, asked, records, failures)
        return records

    def _take(
        self,
        answer: FetchResponse,
        asked: Mapping[TopicPartition, int],
        records: list[ConsumerRecord],
        failures: list[KafkaError],
    ) -> None:
        for topic in answer.responses:
            name = self._cluster.metadata.name_of(topic.topic_id, topic.topic)
            for one in topic.partitions:
                partition = TopicPartition(name, one.partition_index)
                if partition not in asked or self.positions.get(partition) != asked[partition]:
                    continue  # Not asked for, or moved meanwhile.
                try:
                    records += self._shown(partition, one)
                except KafkaError as error:
                    failures.append(error)
                    self._forget([partition])

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._cluster.metadata.forget(partition.topic)

    def _shown(
        self, partition: TopicPartition, one: FetchResponse.Response.Partition
    ) -> list[ConsumerRecord]:
        if one.error_code:
            raise self._error(partition, one)
        data = one.records
        if not isinstance(data, Buffer):
            return []
        committed = self._settings.isolation is Isolation.READ_COMMITTED
        aborted = (
            [(each.producer_id, each.first_offset) for each in one.aborted_transactions or ()]
            if committed
            else None
        )
        position = first = self.positions[partition]
        topic, index = partition
        records: list[ConsumerRecord] = []
        for at, header, shown in shown_batches(data, aborted, check_crcs=self._settings.check_crcs):
            if shown:
                # A fetch into the middle of a batch gives the whole of it.
                records += [
                    ConsumerRecord(topic, index, *row)
                    for row in rows_of(data, header, at)
                    if row[0] >= first
                ]
            position = max(position, header.next_offset)
        self.positions[partition] = position
        return records

    def _error(
        self, partition: TopicPartition, one: FetchResponse.Response.Partition
    ) -> KafkaError:
        if one.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return error_of(one.error_code, f"{partition} cannot be read")
        reason = (
            f"{partition} does not have offset {self.positions[partition]}: it may be "
            "deleted, or not written yet"
        )
        return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)

    async def _trouble(self, error: KafkaError, *, idle: bool) -> None:
        now = self._cluster.world.clock.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if not error.code.retriable or now - self._failing_since > self._cluster.request_timeout_s:
            if idle:
                raise error
            self._fatal = error
        elif idle:
            await asyncio.sleep(self._backoff.next_s())
