"""Fetches one offset range from the leader of its partition.

Leader changes and broker restarts are retried. Returns record batches as the broker sends them;
`kernel.columns` decodes them. Knows nothing of Spark.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from penstock.client.client import Client
from penstock.client.errors import Backoff, check, error_of
from penstock.client.offsets import EARLIEST, LATEST
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, Buffer, TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.records.batch import batches
from penstock.spark.options import FetchOptions
from penstock.spark.source.data_loss import RECREATED, DataLoss, log_start_moved
from penstock.spark.source.offset_reader import list_offsets
from penstock.spark.source.ranges import OffsetRange

PartitionResponse = FetchResponse.Response.Partition

# From v13 on, requests identify topics by id only (KIP-516).
_LAST_VERSION_BY_NAME = 12


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Record batches with the offsets from `position` to `next_position` (exclusive). The first
    may start earlier, and the last may be incomplete."""

    records: Buffer
    aborted: tuple[tuple[int, int], ...]
    position: int
    next_position: int


class RangeFetcher:
    """An async iterator over the batches of an offset range.

    Calls `on_data_loss` for offsets that do not exist any more. It raises, or the fetcher skips
    them.
    """

    def __init__(
        self,
        client: Client,
        offset_range: OffsetRange,
        options: FetchOptions,
        api_timeout_s: float,
        on_data_loss: Callable[[DataLoss], None],
    ) -> None:
        self._client = client
        self._range = offset_range
        self._partition = TopicPartition(offset_range.topic, offset_range.partition)
        self._options = options
        self._api_timeout_s = api_timeout_s
        self._on_data_loss = on_data_loss
        self._position = offset_range.start
        self._backoff = Backoff(client.cluster.world.rng)
        self._now = client.cluster.world.clock.monotonic
        self._advanced_at = self._now()

    async def __aiter__(self) -> AsyncIterator[FetchedBatches]:
        while self._position < self._range.end:
            try:
                fetched = await self._fetch()
            except KafkaError as error:
                await self._retry_after(error)
                continue
            if fetched is not None:
                self._advance(fetched.next_position)
                yield fetched
            elif self._timed_out():
                reason = (
                    f"the log has ended there for {self._api_timeout_s:g} s; an unclean leader "
                    "election truncated it"
                )
                self._skip(self._range.end, reason)

    async def _fetch(self) -> FetchedBatches | None:
        """Return None if the broker returned no records at the position."""
        response = await self._send_fetch()
        if response is None:
            return None
        if response.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._handle_out_of_range()
            return None
        if response.error_code:
            raise error_of(response.error_code, f"{self._partition} cannot be read")
        records = response.records
        if not isinstance(records, Buffer) or not len(records):
            return None
        next_position = max(
            (header.next_offset for _at, header in batches(records)), default=self._position
        )
        if next_position <= self._position:
            return None
        aborted = tuple(
            (transaction.producer_id, transaction.first_offset)
            for transaction in response.aborted_transactions or ()
        )
        return FetchedBatches(records, aborted, self._position, next_position)

    async def _send_fetch(self) -> PartitionResponse | None:
        """Return None if the topic was recreated since the range was planned."""
        topic, info = await self._client.cluster.leader(self._partition)
        if NO_UUID not in (self._range.topic_id, topic.id) and topic.id != self._range.topic_id:
            self._skip(self._range.end, RECREATED)
            return None
        connection = await self._client.cluster.broker(info.leader)
        ceiling = _LAST_VERSION_BY_NAME if topic.id == NO_UUID else None
        timeout_s = self._options.max_wait_s + self._client.cluster.request_timeout_s
        request = self._request(
            FetchRequest.Topic(topic=topic.name, topic_id=topic.id), info.leader_epoch
        )
        response = await connection.call(
            request, FetchResponse, max_version=ceiling, timeout_s=timeout_s
        )
        check(response.error_code, f"{self._partition} cannot be read")
        partitions = [
            partition
            for topic_response in response.responses
            for partition in topic_response.partitions
        ]
        return partitions[0] if partitions else None

    def _request(self, topic: FetchRequest.Topic, leader_epoch: int) -> FetchRequest:
        options = self._options
        partition = FetchRequest.Topic.Partition(
            partition=self._range.partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=self._position,
            partition_max_bytes=options.max_bytes,
        )
        return FetchRequest(
            max_wait_ms=int(options.max_wait_s * 1000),
            min_bytes=1,
            max_bytes=options.max_bytes,
            isolation_level=options.isolation,
            topics=(
                FetchRequest.Topic(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=(partition,)
                ),
            ),
        )

    async def _handle_out_of_range(self) -> None:
        """Skip offsets before the log start. Retry if the log ends before the position: this
        leader may be behind the one that the range was planned with."""
        isolation = self._options.isolation
        earliest, latest = [
            (await list_offsets(self._client, {self._partition: timestamp}, isolation))[
                self._partition
            ]
            for timestamp in (EARLIEST, LATEST)
        ]
        if self._position < earliest:
            end = min(earliest, self._range.end)
            self._report(log_start_moved(self._partition, self._position, end, earliest))
            return
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{self._partition} ends at {latest}, before {self._position}",
        )

    def _skip(self, end: int, reason: str) -> None:
        self._report(DataLoss(self._partition, self._position, end, reason))

    def _report(self, loss: DataLoss) -> None:
        assert loss.end is not None
        self._on_data_loss(loss)
        self._advance(loss.end)

    def _advance(self, position: int) -> None:
        self._position, self._advanced_at = position, self._now()
        self._backoff.reset()

    def _timed_out(self) -> bool:
        return self._now() - self._advanced_at > self._api_timeout_s

    async def _retry_after(self, error: KafkaError) -> None:
        """Back off before the next attempt; raise if the error is not retriable or the timeout has
        passed. An unknown topic is retriable: the broker may not have its metadata yet."""
        self._client.cluster.metadata.forget(self._range.topic)
        if not error.code.retriable or self._timed_out():
            raise KafkaError(
                error.code, f"{self._partition} at offset {self._position}: {error.message}"
            ) from error
        await asyncio.sleep(self._backoff.next_s())
