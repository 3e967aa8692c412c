"""Fetches offset ranges from the leaders of their partitions, one request per broker at a time.

Leader changes and broker restarts are retried. Returns record batches as the brokers send them;
`kernel.columns` decodes them. Knows nothing of Spark.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.client.client import Client
from penstock.client.errors import UNKNOWN_TOPIC_RETRY_S, Backoff, check, error_of
from penstock.client.metadata import TopicInfo, no_leader
from penstock.client.offsets import EARLIEST, LATEST
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, TopicPartition
from penstock.protocol.messages.fetch import FetchResponse
from penstock.spark.options import FetchOptions
from penstock.spark.source.data_loss import RECREATED, DataLoss, log_start_moved
from penstock.spark.source.fetch_messages import (
    FetchedBatches,
    FetchLimits,
    PartitionResponse,
    Position,
    fetch_request,
    fetched_batches,
)
from penstock.spark.source.offset_reader import list_offsets
from penstock.spark.source.ranges import OffsetRange


class _Unread:
    """What is left of a range. An error postpones its next fetch to `retry_at`."""

    __slots__ = ("error", "offset_range", "other_id_since", "partition", "position", "retry_at")

    def __init__(self, offset_range: OffsetRange) -> None:
        self.offset_range = offset_range
        self.partition = TopicPartition(offset_range.topic, offset_range.partition)
        self.position = offset_range.start
        self.retry_at = 0.0
        # The result of the last fetch.
        self.error: KafkaError | None = None
        # When metadata first showed another topic id than that of the range.
        self.other_id_since: float | None = None


class _InFlightFetch(NamedTuple):
    future: asyncio.Future[FetchResponse]
    partitions: frozenset[TopicPartition]


class RangesFetcher:
    """An async iterator over what each Fetch returned, for ranges of different partitions.

    Calls `on_data_loss` for offsets that do not exist any more. It raises, or the fetcher skips
    them. KafkaError if no range advances for `api_timeout_s`: the records may still exist, so they
    are never skipped.
    """

    def __init__(
        self,
        client: Client,
        ranges: Sequence[OffsetRange],
        options: FetchOptions,
        api_timeout_s: float,
        on_data_loss: Callable[[DataLoss], None],
    ) -> None:
        self._client = client
        self._cluster = client.cluster
        self._isolation = options.isolation
        self._limits = FetchLimits(
            isolation=options.isolation,
            max_wait_ms=int(options.max_wait_s * 1000),
            min_bytes=1,
            max_bytes=options.max_bytes,
            partition_max_bytes=options.max_bytes,
        )
        self._request_timeout_s = options.max_wait_s + client.cluster.request_timeout_s
        self._api_timeout_s = api_timeout_s
        self._on_data_loss = on_data_loss
        unread = [_Unread(offset_range) for offset_range in ranges if offset_range.size > 0]
        self._unread = {each.partition: each for each in unread}
        assert len(self._unread) == len(unread), "two ranges of one partition"
        self._in_flight: dict[int, _InFlightFetch] = {}
        self._backoff = Backoff(client.cluster.world.rng)
        # When the partitions that fail in this round are fetched again; None before the first.
        self._next_retry_at: float | None = None
        self._now = client.cluster.world.clock.monotonic
        self._advanced_at = self._now()

    async def __aiter__(self) -> AsyncIterator[list[FetchedBatches]]:
        try:
            while self._unread:
                self._next_retry_at = None
                await self._send_fetches()
                fetched = await self._collect()
                if fetched:
                    yield fetched
                    # The consumer's time does not count.
                    self._advanced_at = self._now()
                self._check_progress()
        finally:
            for fetch in self._in_flight.values():
                fetch.future.cancel()

    async def _send_fetches(self) -> None:
        """Send a Fetch to every leader that has none in flight."""
        now = self._now()
        in_flight = {
            partition for fetch in self._in_flight.values() for partition in fetch.partitions
        }
        due = [
            unread
            for partition, unread in self._unread.items()
            if partition not in in_flight and unread.retry_at <= now
        ]
        by_leader: dict[int, dict[TopicPartition, Position]] = {}
        for partition, position in (await self._positions(due)).items():
            by_leader.setdefault(position.info.leader, {})[partition] = position
        for node_id, positions in by_leader.items():
            if node_id in self._in_flight:
                continue
            try:
                connection = await self._cluster.broker(node_id)
                request, max_version = fetch_request(positions, self._limits)
                future = connection.send(
                    request,
                    FetchResponse,
                    max_version=max_version,
                    timeout_s=self._request_timeout_s,
                )
            except KafkaError as error:
                self._retry_later(positions, error)
            else:
                self._in_flight[node_id] = _InFlightFetch(future, frozenset(positions))

    async def _positions(self, due: Sequence[_Unread]) -> dict[TopicPartition, Position]:
        """Find the leaders, with at most one Metadata request per topic. Skips ranges of topics
        that were recreated since they were planned."""
        topics: dict[str, TopicInfo | KafkaError] = {}
        positions = {}
        for unread in due:
            name = unread.partition.topic
            if name not in topics:
                topics[name] = await self._topic(name)
            topic = topics[name]
            try:
                if isinstance(topic, KafkaError):
                    raise topic
                if _is_other(topic.id, unread.offset_range.topic_id):
                    self._handle_other_id(unread)
                    continue
                info = topic.partition(unread.partition.partition)
                if info.leader < 0:
                    raise no_leader(unread.partition)
            except KafkaError as error:
                self._retry_later([unread.partition], error)
            else:
                positions[unread.partition] = Position(topic, info, unread.position)
        return positions

    async def _topic(self, name: str) -> TopicInfo | KafkaError:
        known = self._cluster.metadata.topics.get(name)
        if known is not None:
            return known
        try:
            return (await self._cluster.topics([name]))[0]
        except KafkaError as error:
            return error

    def _handle_other_id(self, unread: _Unread) -> None:
        """Skip the range if the topic was recreated since it was planned. The metadata that shows
        another id may be older than the plan: the client cached it, or a broker has not caught up.
        It is therefore fetched again for some seconds."""
        if unread.other_id_since is None:
            unread.other_id_since = self._now()
        if self._now() - unread.other_id_since < UNKNOWN_TOPIC_RETRY_S:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "the topic has another id than planned")
        self._report(unread, _lost(unread, RECREATED))

    async def _collect(self) -> list[FetchedBatches]:
        """Wait for the first Fetch to complete and return the batches of all that completed."""
        wait_s = self._retry_wait_s()
        if not self._in_flight:
            await asyncio.sleep(wait_s or 0)
            return []
        await asyncio.wait(
            [fetch.future for fetch in self._in_flight.values()],
            timeout=wait_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        fetched: list[FetchedBatches] = []
        for node_id, fetch in list(self._in_flight.items()):
            if fetch.future.done():
                del self._in_flight[node_id]
                fetched += await self._complete(node_id, fetch)
        return fetched

    def _retry_wait_s(self) -> float | None:
        """Return the time until the first postponed partition is due; None if there is none."""
        now = self._now()
        waits = [unread.retry_at - now for unread in self._unread.values() if unread.retry_at > now]
        return min(waits, default=None)

    async def _complete(self, node_id: int, fetch: _InFlightFetch) -> list[FetchedBatches]:
        try:
            response = fetch.future.result()
            check(response.error_code, f"broker {node_id} refused the fetch")
        except KafkaError as error:
            self._retry_later(fetch.partitions, error)
            return []
        fetched = []
        for topic in response.responses:
            name = self._cluster.metadata.name_of(topic.topic_id, topic.topic)
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                unread = self._unread.get(partition)
                if unread is None or partition not in fetch.partitions:
                    continue
                try:
                    returned = await self._batches_of(unread, data)
                except KafkaError as error:
                    self._retry_later([partition], error)
                    continue
                unread.error = None
                if returned is not None:
                    self._advance(unread, returned.next_position)
                    fetched.append(returned)
        return fetched

    async def _batches_of(self, unread: _Unread, data: PartitionResponse) -> FetchedBatches | None:
        """Return None if the broker returned no records at the position."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._handle_out_of_range(unread)
            return None
        if data.error_code:
            raise error_of(data.error_code, f"{unread.partition} cannot be read")
        return fetched_batches(unread.offset_range, unread.position, data)

    async def _handle_out_of_range(self, unread: _Unread) -> None:
        """Skip offsets before the log start. Retry if the log ends before the position: this
        leader may be behind the one that the range was planned with."""
        isolation, partition = self._isolation, unread.partition
        earliest, latest = [
            (await list_offsets(self._client, {partition: timestamp}, isolation))[partition]
            for timestamp in (EARLIEST, LATEST)
        ]
        if unread.position < earliest:
            end = min(earliest, unread.offset_range.end)
            self._report(unread, log_start_moved(partition, unread.position, end, earliest))
            return
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition} ends at {latest}, before {unread.position}",
        )

    def _report(self, unread: _Unread, loss: DataLoss) -> None:
        assert loss.end is not None
        self._on_data_loss(loss)
        self._advance(unread, loss.end)

    def _advance(self, unread: _Unread, position: int) -> None:
        unread.position = position
        if position >= unread.offset_range.end:
            del self._unread[unread.partition]
        self._advanced_at = self._now()
        self._backoff.reset()

    def _retry_later(self, partitions: Collection[TopicPartition], error: KafkaError) -> None:
        """Postpone the partitions; raise if the error is not retriable. An unknown topic is
        retriable: the broker may not have its metadata yet."""
        if self._next_retry_at is None:
            self._next_retry_at = self._now() + self._backoff.next_s()
        for partition in partitions:
            self._cluster.metadata.forget(partition.topic)
            unread = self._unread[partition]
            if not error.code.retriable:
                raise _at_position(unread, error) from error
            unread.retry_at, unread.error = self._next_retry_at, error

    def _check_progress(self) -> None:
        """Raise if no range has advanced within the timeout: the last error or, if the brokers
        respond without one, but with no records, that. They had the records when the range was
        planned."""
        if not self._unread or self._now() - self._advanced_at <= self._api_timeout_s:
            return
        for unread in self._unread.values():
            if unread.error is not None:
                raise _at_position(unread, unread.error) from unread.error
        reason = (
            f"the broker has returned no records for {self._api_timeout_s:g} s, but the batch ends "
            f"at offset {unread.offset_range.end}. Either the partition's leader is behind, or an "
            "unclean leader election truncated the log. Start the query again: it then compares "
            "the batch with the log, and reports offsets that were lost"
        )
        raise _at_position(unread, KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason))


def _at_position(unread: _Unread, error: KafkaError) -> KafkaError:
    return KafkaError(
        error.code, f"{unread.partition} at offset {unread.position}: {error.message}"
    )


def _is_other(topic_id: UUID, planned: UUID) -> bool:
    return NO_UUID not in (topic_id, planned) and topic_id != planned


def _lost(unread: _Unread, reason: str) -> DataLoss:
    return DataLoss(unread.partition, unread.position, unread.offset_range.end, reason)
