"""RecordAccumulator, which collects a partition's records into batches.

Knows nothing about brokers; `sender` sends the batches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import KafkaError
from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from penstock.limits import BATCH_HEADER_BYTES
from penstock.records.build import NewRecord, build_batch
from penstock.records.compression import Codec

# Upper bound of a record's varints (length, attributes, deltas, lengths of key, value and headers)
# for all but extreme records.
_RECORD_OVERHEAD = 21
_HEADER_OVERHEAD = 10
_SEQUENCES = 2**31


class RecordMetadata(NamedTuple):
    """A written record's position.

    The offset is -1 if it is unknown: with acks=0, or if the broker reports the batch as a
    duplicate whose offset it no longer has.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class ProducerIdAndEpoch(NamedTuple):
    id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NO_PRODUCER = ProducerIdAndEpoch()


def size_of(record: NewRecord) -> int:
    """Return an upper bound of the record's encoded size."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _HEADER_OVERHEAD + 4 * len(name) + len(value or b"")
    return size


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """A batch of one partition.

    `maybe_written` is set if the batch was sent and its outcome is unknown; it may then be sent
    again only with the same sequence. `ordinal` numbers the batches that have a sequence.
    """

    partition: TopicPartition
    created: float
    records: list[NewRecord] = field(default_factory=list)
    futures: list[asyncio.Future[RecordMetadata]] = field(default_factory=list)
    size: int = BATCH_HEADER_BYTES
    sequence: int = NO_SEQUENCE
    ordinal: int = -1
    encoded: bytes | None = None
    maybe_written: bool = False

    def add(self, record: NewRecord, size: int, future: asyncio.Future[RecordMetadata]) -> None:
        self.records.append(record)
        self.futures.append(future)
        self.size += size

    def encode(
        self, codec: Codec, producer: ProducerIdAndEpoch, *, transactional: bool = False
    ) -> bytes:
        """Encode the batch once; a retry sends the same bytes."""
        if self.encoded is None:
            self.encoded = build_batch(
                self.records,
                codec=codec,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=self.sequence,
                transactional=transactional,
            )
        return self.encoded

    def reset_sequence(self) -> None:
        self.sequence, self.ordinal, self.encoded = NO_SEQUENCE, -1, None

    def succeed(self, base_offset: int, append_time_ms: int) -> None:
        for delta, (record, future) in enumerate(zip(self.records, self.futures, strict=True)):
            timestamp = append_time_ms if append_time_ms >= 0 else record.timestamp
            offset = base_offset + delta if base_offset >= 0 else -1
            if not future.done():
                future.set_result(RecordMetadata(*self.partition, offset, timestamp))

    def cancel(self) -> None:
        for future in self.futures:
            future.cancel()

    def ignore_errors(self) -> None:
        """Keep asyncio from logging errors that nobody awaits: the transaction reports them."""
        for future in self.futures:
            if future.done() and not future.cancelled():
                future.exception()

    def fail(self, errors: KafkaError | list[KafkaError]) -> None:
        """Fail all records with one error, or each with its own."""
        per_record = errors if isinstance(errors, list) else [errors] * len(self.futures)
        for future, error in zip(self.futures, per_record, strict=True):
            if not future.done():
                future.set_exception(error)


class RecordAccumulator:
    """The unsent batches of one partition, oldest first.

    Records are appended to the last batch until it is full or drained. Kafka's class of this name
    has the batches of all partitions; here each partition has its own.
    """

    def __init__(self, partition: TopicPartition, batch_bytes: int, linger_s: float) -> None:
        self._partition = partition
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._batches: deque[ProducerBatch] = deque()
        self._open: ProducerBatch | None = None

    def __len__(self) -> int:
        return len(self._batches)

    def add(
        self, record: NewRecord, size: int, future: asyncio.Future[RecordMetadata], now: float
    ) -> None:
        batch = self._open
        if batch is None or batch.size + size > self._batch_bytes:
            batch = self._open = ProducerBatch(self._partition, now)
            self._batches.append(batch)
        batch.add(record, size, future)

    def ready_at(self, *, flushing: bool) -> float | None:
        """Return when the oldest batch may be sent: 0.0 is immediately, None means no batch."""
        if not self._batches:
            return None
        head = self._batches[0]
        if flushing or head is not self._open or head.size >= self._batch_bytes:
            return 0.0
        return head.created + self._linger_s

    @property
    def head(self) -> ProducerBatch:
        return self._batches[0]

    def drain(self) -> ProducerBatch:
        """Remove and return the oldest batch."""
        batch = self._batches.popleft()
        if batch is self._open:
            self._open = None
        return batch

    def reenqueue(self, batches: list[ProducerBatch]) -> None:
        """Insert batches before all others, in their order."""
        self._batches.extendleft(reversed(batches))

    def keep_if(self, predicate: Callable[[ProducerBatch], bool]) -> None:
        """Remove the batches for which the predicate is false."""
        self._batches = deque(batch for batch in self._batches if predicate(batch))

    def clear(self) -> list[ProducerBatch]:
        removed, self._batches, self._open = list(self._batches), deque(), None
        return removed


class SequenceNumbers:
    """The sequence numbers of one partition and producer id: int32, wrapping to 0."""

    def __init__(self) -> None:
        self._next = 0
        self.batches = 0

    def assign(self, batch: ProducerBatch) -> None:
        """Give the batch the next sequence; a retried batch keeps the one it has."""
        if batch.sequence == NO_SEQUENCE:
            batch.sequence, batch.ordinal = self._next, self.batches
            self.batches += 1
            self._next = (self._next + len(batch.records)) % _SEQUENCES
