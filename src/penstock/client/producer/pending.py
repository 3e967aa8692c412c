"""Records on their way: gathered into batches, numbered with sequences, and each with a future that
says what became of it.

Knows nothing of brokers; `delivery` sends what is gathered here.
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

# Length, attributes, deltas and the lengths of key, value and headers are varints: at most this
# many bytes in all but the rarest records.
_RECORD_OVERHEAD = 21
_HEADER_OVERHEAD = 10
_SEQUENCES = 2**31


class Delivered(NamedTuple):
    """Where a record went. An offset of -1 is not known: with acks=0, or where a retry found it
    written long before."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ProducerIdentity(NamedTuple):
    id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def size_of(record: NewRecord) -> int:
    """At least as much as the record takes in a batch."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _HEADER_OVERHEAD + 4 * len(name) + len(value or b"")
    return size


@dataclass(slots=True, eq=False)
class PendingBatch:
    """`maybe_written` once it was sent and the broker's word was not heard: it may be sent again
    only under the same sequence. `ordinal` counts the batches that have one."""

    partition: TopicPartition
    created: float
    records: list[NewRecord] = field(default_factory=list)
    futures: list[asyncio.Future[Delivered]] = field(default_factory=list)
    size: int = BATCH_HEADER_BYTES
    sequence: int = NO_SEQUENCE
    ordinal: int = -1
    encoded: bytes | None = None
    maybe_written: bool = False

    def add(self, record: NewRecord, size: int, future: asyncio.Future[Delivered]) -> None:
        self.records.append(record)
        self.futures.append(future)
        self.size += size

    def encode(self, codec: Codec, identity: ProducerIdentity) -> bytes:
        """Kept, so that a retry sends the same bytes."""
        if self.encoded is None:
            self.encoded = build_batch(
                self.records,
                codec=codec,
                producer_id=identity.id,
                producer_epoch=identity.epoch,
                base_sequence=self.sequence,
            )
        return self.encoded

    def forget_sequence(self) -> None:
        self.sequence, self.ordinal, self.encoded = NO_SEQUENCE, -1, None

    def succeed(self, base_offset: int, append_time_ms: int) -> None:
        for delta, (record, future) in enumerate(zip(self.records, self.futures, strict=True)):
            timestamp = append_time_ms if append_time_ms >= 0 else record.timestamp
            offset = base_offset + delta if base_offset >= 0 else -1
            if not future.done():
                future.set_result(Delivered(*self.partition, offset, timestamp))

    def cancel(self) -> None:
        for future in self.futures:
            future.cancel()

    def fail(self, errors: KafkaError | list[KafkaError]) -> None:
        """One error for all records, or one for each."""
        each = errors if isinstance(errors, list) else [errors] * len(self.futures)
        for future, error in zip(self.futures, each, strict=True):
            if not future.done():
                future.set_exception(error)


class BatchQueue:
    """The batches of one partition, oldest first. The last one is open while it has room and was
    not taken."""

    def __init__(self, partition: TopicPartition, batch_bytes: int, linger_s: float) -> None:
        self._partition = partition
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._batches: deque[PendingBatch] = deque()
        self._open: PendingBatch | None = None

    def __len__(self) -> int:
        return len(self._batches)

    def add(
        self, record: NewRecord, size: int, future: asyncio.Future[Delivered], now: float
    ) -> None:
        batch = self._open
        if batch is None or batch.size + size > self._batch_bytes:
            batch = self._open = PendingBatch(self._partition, now)
            self._batches.append(batch)
        batch.add(record, size, future)

    def ready_at(self, *, flushing: bool) -> float | None:
        """When the oldest batch may be sent: 0.0 is at once, None is never while nothing comes."""
        if not self._batches:
            return None
        head = self._batches[0]
        if flushing or head is not self._open or head.size >= self._batch_bytes:
            return 0.0
        return head.created + self._linger_s

    @property
    def head(self) -> PendingBatch:
        return self._batches[0]

    def take(self) -> PendingBatch:
        batch = self._batches.popleft()
        if batch is self._open:
            self._open = None
        return batch

    def put_back(self, batches: list[PendingBatch]) -> None:
        """Before all others, in their order."""
        self._batches.extendleft(reversed(batches))

    def keep(self, wanted: Callable[[PendingBatch], bool]) -> None:
        """Drops the batches that are not wanted."""
        self._batches = deque(batch for batch in self._batches if wanted(batch))

    def clear(self) -> list[PendingBatch]:
        dropped, self._batches, self._open = list(self._batches), deque(), None
        return dropped


class Sequences:
    """The sequence numbers of one partition under one producer identity: int32, and from 0 again
    after 2**31 - 1."""

    def __init__(self) -> None:
        self._next = 0
        self.batches = 0

    def number(self, batch: PendingBatch) -> None:
        """Once only: a retry keeps its number."""
        if batch.sequence == NO_SEQUENCE:
            batch.sequence, batch.ordinal = self._next, self.batches
            self.batches += 1
            self._next = (self._next + len(batch.records)) % _SEQUENCES
