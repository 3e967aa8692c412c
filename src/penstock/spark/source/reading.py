"""Fetching a range of offsets from whoever leads the partition, through leaders that move and
brokers that restart.

Gives record batches as they lie on the wire; `columns` decodes them. Must never know Spark.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from penstock.client.client import Client
from penstock.client.faults import check, error_of
from penstock.client.offsets import EARLIEST, LATEST
from penstock.client.retry import Backoff
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, Buffer, TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.records.batch import batches
from penstock.spark.options import FetchOptions
from penstock.spark.source.lookup import offsets_at
from penstock.spark.source.offsets import DataLoss, Range

Answer = FetchResponse.Response.Partition

# From v13 on, topics are named by id alone.
_LAST_BY_NAME = 12


@dataclass(frozen=True, slots=True)
class Fetched:
    """Batches that may begin before the position, and be cut at the end. Of the range, what is
    before `next_position` is in here."""

    records: Buffer
    aborted: tuple[tuple[int, int], ...]
    position: int
    next_position: int


class RangeReader:
    """`lost` is told of records of the range that are gone; it raises, or the read goes on behind
    them."""

    def __init__(
        self,
        client: Client,
        one: Range,
        options: FetchOptions,
        patience_s: float,
        lost: Callable[[DataLoss], None],
    ) -> None:
        self._client = client
        self._range = one
        self._partition = TopicPartition(one.topic, one.partition)
        self._options = options
        self._patience_s = patience_s
        self._lost = lost
        self._position = one.start
        self._backoff = Backoff(client.cluster.world.rng)
        self._now = client.cluster.world.clock.monotonic
        self._progress_at = self._now()

    async def __aiter__(self) -> AsyncIterator[Fetched]:
        while self._position < self._range.end:
            try:
                fetched = await self._fetch()
            except KafkaError as error:
                await self._wait_out(error)
                continue
            if fetched is not None:
                self._progressed(fetched.next_position)
                yield fetched
            elif self._impatient():
                why = (
                    f"the log has ended there for {self._patience_s:g} s: it lost its end, as "
                    "in an unclean election"
                )
                self._skip(self._range.end, why)

    async def _fetch(self) -> Fetched | None:
        """None where there is nothing at the position yet."""
        answer = await self._ask()
        if answer is None:
            return None
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find_again()
            return None
        if answer.error_code:
            raise error_of(answer.error_code, f"{self._partition} cannot be read")
        records = answer.records
        if not isinstance(records, Buffer) or not len(records):
            return None
        following = max(
            (header.next_offset for _at, header in batches(records)), default=self._position
        )
        if following <= self._position:
            return None
        aborted = tuple(
            (one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()
        )
        return Fetched(records, aborted, self._position, following)

    async def _ask(self) -> Answer | None:
        """None where the topic is another one by now."""
        topic, info = await self._client.cluster.leader(self._partition)
        if NO_UUID not in (self._range.topic_id, topic.id) and topic.id != self._range.topic_id:
            self._skip(self._range.end, "the topic was deleted and created again since")
            return None
        connection = await self._client.cluster.broker(info.leader)
        ceiling = _LAST_BY_NAME if topic.id == NO_UUID else None
        timeout_s = self._options.max_wait_s + self._client.cluster.request_timeout_s
        request = self._request(
            FetchRequest.Topic(topic=topic.name, topic_id=topic.id), info.leader_epoch
        )
        answer = await connection.call(request, FetchResponse, ceiling=ceiling, timeout_s=timeout_s)
        check(answer.error_code, f"{self._partition} cannot be read")
        found = [one for each in answer.responses for one in each.partitions]
        return found[0] if found else None

    def _request(self, topic: FetchRequest.Topic, leader_epoch: int) -> FetchRequest:
        options = self._options
        part = FetchRequest.Topic.Partition(
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
                FetchRequest.Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=(part,)),
            ),
        )

    async def _find_again(self) -> None:
        """The leader does not have the position: the log's start has moved past it, or this leader
        is behind what was planned with."""
        edges = [
            await offsets_at(self._client, {self._partition: edge}, self._options.isolation)
            for edge in (EARLIEST, LATEST)
        ]
        earliest, latest = (one[self._partition] for one in edges)
        if self._position < earliest:
            self._skip(
                min(earliest, self._range.end),
                f"the log begins at {earliest}: retention or a deletion of records took them",
            )
        else:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{self._partition} ends at {latest}, before {self._position}",
            )

    def _skip(self, to: int, why: str) -> None:
        self._lost(DataLoss(self._partition, self._position, to, why))
        self._progressed(to)

    def _progressed(self, to: int) -> None:
        self._position, self._progress_at = to, self._now()
        self._backoff.reset()

    def _impatient(self) -> bool:
        return self._now() - self._progress_at > self._patience_s

    async def _wait_out(self, error: KafkaError) -> None:
        """A topic that is not known may be one that a broker does not know yet, so this counts as
        trouble that may pass."""
        self._client.cluster.metadata.forget(self._range.topic)
        if not error.code.retriable or self._impatient():
            raise KafkaError(
                error.code, f"{self._partition} at offset {self._position}: {error.message}"
            ) from error
        await asyncio.sleep(self._backoff.next_s())
