"""The producer state of a log: sequences, epochs and open transactions (KIP-98). PURE.

Check, then apply: `check` decides on a client's batch and changes nothing (a duplicate gets the
offset of the first append); `apply` records a batch that was appended by a client, a leader or
recovery, without checks.

At most five batches of a producer are remembered, because a producer has at most five in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_PRODUCER_EPOCH, NO_SEQUENCE
from penstock.records.batch import BatchHeader

REMEMBERED_BATCHES = 5
_LAST_SEQUENCE = 2**31 - 1


class AppendedBatch(NamedTuple):
    """A batch in the log. End offsets and sequences are inclusive, as in Kafka's snapshot."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class EndMarker(NamedTuple):
    """A transaction marker from a control batch."""

    committed: bool
    coordinator_epoch: int


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@dataclass(slots=True)
class Producer:
    """A producer's state in this partition."""

    epoch: int = NO_PRODUCER_EPOCH
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    coordinator_epoch: int = -1
    txn_first_offset: int | None = None
    last_timestamp: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerStates:
    """The producers of a log, and the transactions that hold back its last stable offset."""

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.end_offset = 0
        # Producers with an open transaction, and its first offset: few, while there may be many
        # producers.
        self._open: dict[int, int] = {}
        # Transactions whose marker is in the log but not below the high watermark: first offset ->
        # offset of the marker.
        self._unreplicated: dict[int, int] = {}

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """Check a batch. Return the earlier append that it repeats; None if it is new. Raises
        KafkaError if it may not be appended.

        A batch without a sequence is a coordinator's (offsets of a transaction), which does not
        retry appends; clients always send one."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return None
        has_sequence = header.base_sequence != NO_SEQUENCE
        duplicate = self._duplicate(producer, header) if has_sequence else None
        if duplicate is not None:
            return duplicate
        if header.producer_epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} of epoch {header.producer_epoch} was fenced by "
                f"epoch {producer.epoch}",
            )
        if has_sequence:
            self._check_sequence(producer, header)
        if producer.txn_first_offset is not None and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} sent a batch outside its transaction, open since "
                f"offset {producer.txn_first_offset}",
            )
        return None

    @staticmethod
    def _duplicate(producer: Producer, header: BatchHeader) -> AppendedBatch | None:
        if header.producer_epoch != producer.epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in producer.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    @staticmethod
    def _check_sequence(producer: Producer, header: BatchHeader) -> None:
        if header.producer_epoch != producer.epoch:
            if header.base_sequence != 0 and producer.epoch != NO_PRODUCER_EPOCH:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    (
                        f"producer {header.producer_id} begins epoch {header.producer_epoch} at "
                        f"sequence {header.base_sequence}, not at 0"
                    ),
                )
            return
        last = producer.last_sequence
        expected = 0 if last == _LAST_SEQUENCE else last + 1
        if header.base_sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                (
                    f"producer {header.producer_id} sent sequence {header.base_sequence} after "
                    f"{last}: {expected} was expected"
                ),
            )

    def check_marker(self, header: BatchHeader, marker: EndMarker) -> None:
        """Check a coordinator's transaction marker."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                (
                    f"a marker of epoch {header.producer_epoch} for producer {header.producer_id} "
                    f"came after epoch {producer.epoch} was seen"
                ),
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the coordinator of epoch {marker.coordinator_epoch} was fenced by epoch "
                f"{producer.coordinator_epoch}",
            )

    def apply(self, header: BatchHeader, marker: EndMarker | None = None) -> CompletedTxn | None:
        """Record a batch that is in the log. Return the transaction that it ended."""
        self.end_offset = header.next_offset
        if not header.has_producer:
            return None
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = Producer()
        if header.producer_epoch != producer.epoch:
            producer.batches.clear()
            producer.epoch = header.producer_epoch
        producer.last_timestamp = header.max_timestamp
        if header.is_control:
            return self._end_txn(header, producer, marker)
        if header.base_sequence != NO_SEQUENCE:
            producer.batches.append(
                AppendedBatch(
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
            )
        if header.is_transactional and producer.txn_first_offset is None:
            producer.txn_first_offset = self._open[header.producer_id] = header.base_offset
        return None

    def _end_txn(
        self, header: BatchHeader, producer: Producer, marker: EndMarker | None
    ) -> CompletedTxn | None:
        if marker is None:
            return None
        producer.coordinator_epoch = marker.coordinator_epoch
        first = producer.txn_first_offset
        producer.txn_first_offset = None
        self._open.pop(header.producer_id, None)
        if first is None:
            return None
        self._unreplicated[first] = header.last_offset
        return CompletedTxn(
            header.producer_id, first, header.last_offset, aborted=not marker.committed
        )

    def stable_end_after(self, completed: CompletedTxn) -> int:
        """Return the last stable offset after this transaction ended; the transaction index stores
        it with an aborted one."""
        return min((*self._open.values(), completed.last_offset + 1))

    def advance(self, high_watermark: int) -> None:
        """Forget transactions whose marker is below the high watermark: they do not hold back the
        last stable offset any more."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }

    def first_unstable_offset(self) -> int | None:
        """Return the first offset of a transaction that is open, or whose marker is not replicated
        yet."""
        return min((*self._open.values(), *self._unreplicated), default=None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were idle for long and have no open transaction."""
        for producer_id, producer in list(self.producers.items()):
            if (
                producer.txn_first_offset is None
                and now_ms - producer.last_timestamp >= expiration_ms
            ):
                del self.producers[producer_id]

    def restore(self, producers: Iterable[tuple[int, Producer]]) -> None:
        """Add producers of a snapshot."""
        for producer_id, producer in producers:
            self.producers[producer_id] = producer
            if producer.txn_first_offset is not None:
                self._open[producer_id] = producer.txn_first_offset
