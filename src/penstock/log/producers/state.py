"""The producer state of a log: sequences, epochs and open transactions (KIP-98). PURE.

Check, then apply: `check` decides on a client's batch and changes nothing (a duplicate gets the
offset of the first append); `apply` records a batch that was appended by a client, a leader or
recovery, without checks.

At most five batches of a producer are remembered, because a producer has at most five in flight.

A leader takes the first batch of a transaction only with a confirmed guard (`verification`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from penstock.log.producers.unstable import UnstableTransactions
from penstock.log.producers.verification import VerificationGuard, VerificationGuards
from penstock.records.batch import TRANSACTIONAL_BIT, BatchHeader

REMEMBERED_BATCHES = 5
_LAST_SEQUENCE = 2**31 - 1
# Since this transaction version the coordinator bumps the producer epoch with each transaction's
# end (KIP-890).
_EPOCH_BUMP_VERSION = 2


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

    __slots__ = (
        "_guards",
        "end_offset",
        "expiring",
        "producers",
        "snapshot_offset",
        "unstable",
    )

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        # Those of a store with a producer or a guard that may expire; None outside of a store.
        self.expiring: dict[ProducerStates, None] | None = None
        self.end_offset = 0
        # The offset of the snapshot that the state was read from; 0 if there was none.
        self.snapshot_offset = 0
        self.unstable = UnstableTransactions()
        self._guards = VerificationGuards()

    def mark(self) -> None:
        """Look at these states for expiry if there is something that may expire."""
        if self.expiring is not None and (self.producers or self._guards):
            self.expiring[self] = None

    # Verification

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return True if the producer has an open transaction of this epoch. A transaction of an
        earlier epoch may have ended."""
        producer = self.producers.get(producer_id)
        return (
            producer is not None
            and producer.txn_first_offset is not None
            and producer.epoch == epoch
        )

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds: bool
    ) -> VerificationGuard | None:
        """Return the guard of a transaction that is to begin; None if it is open already. Raises
        KafkaError if the epoch is stale."""
        if self.is_open(producer_id, epoch):
            return None
        producer = self.producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise _fenced(producer_id, epoch, producer)
        guard = self._guards.begin(producer_id, epoch, sequence, now_ms, adds=adds)
        self.mark()
        return guard

    def confirm_verification(self, guard: VerificationGuard) -> bool:
        """Accept the transaction's first batch from now on. Return False if the guard is void: a
        marker came during the verification."""
        return self._guards.confirm(guard) or self.is_open(guard.producer_id, guard.epoch)

    def void_verification(self, guard: VerificationGuard) -> None:
        self._guards.void(guard)

    def void_verifications(self) -> None:
        """Forget all guards, because this node does not lead any more."""
        self._guards.clear()

    def _check_verified(
        self, producer: Producer | None, header: BatchHeader, from_client: bool
    ) -> None:
        """Check that a transactional batch belongs to an open transaction or to a verified one."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producer is not None:
            if producer.txn_first_offset is not None and producer.epoch == epoch:
                return
            if epoch < producer.epoch:
                raise _fenced(producer_id, epoch, producer)
        guard = self._guards.find(producer_id, epoch)
        if guard is None or not guard.is_confirmed:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has no transaction of epoch {epoch} in this partition",
            )
        if from_client:
            guard.check_sequence(
                header.base_sequence, has_batches=producer is not None and bool(producer.batches)
            )

    # Checks

    def check(
        self,
        header: BatchHeader,
        *,
        only_verified: bool = False,
        from_client: bool = True,
        from_the_first: bool = False,
    ) -> AppendedBatch | None:
        """Check a batch. Return the earlier append that it repeats; None if it is new. Raises
        KafkaError if it may not be appended.

        A coordinator does not retry appends, and each of its batches has the sequence 0 (offsets
        of a transaction). With only_verified, the first batch of a transaction needs a confirmed
        guard.

        The state of a producer may have expired, so one that is not known may go on at any
        sequence. With from_the_first it may not: its first batch was refused or truncated a moment
        ago, and comes again."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            if only_verified and header.attributes & TRANSACTIONAL_BIT:
                self._check_verified(None, header, from_client)
            if from_the_first and from_client and header.base_sequence > 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} is not known, and sent sequence "
                    f"{header.base_sequence}: 0 was expected",
                )
            return None
        duplicate = self._duplicate(producer, header) if from_client else None
        if duplicate is not None:
            return duplicate
        if only_verified and header.attributes & TRANSACTIONAL_BIT:
            self._check_verified(producer, header, from_client)
        elif header.producer_epoch < producer.epoch:
            raise _fenced(header.producer_id, header.producer_epoch, producer)
        if from_client:
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

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> None:
        """Check a coordinator's transaction marker. A producer that is not known here is accepted:
        its state may have expired.

        With transaction version 2 the marker has a newer epoch than the transaction, so one of the
        same epoch belongs to an earlier transaction and must not end the open one (KIP-1228). If
        no transaction is open, it is a retry, and harmless (KAFKA-19999)."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return
        is_stale = producer_epoch < producer.epoch or (
            producer_epoch == producer.epoch
            and transaction_version >= _EPOCH_BUMP_VERSION
            and producer.txn_first_offset is not None
        )
        if is_stale:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                (
                    f"a marker of epoch {producer_epoch} and transaction version "
                    f"{transaction_version} for producer {producer_id} came after epoch "
                    f"{producer.epoch} was seen"
                ),
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the coordinator of epoch {coordinator_epoch} was fenced by epoch "
                f"{producer.coordinator_epoch}",
            )

    # Changes

    def apply(self, header: BatchHeader, marker: EndMarker | None = None) -> CompletedTxn | None:
        """Record a batch that is in the log. Return the transaction that it ended."""
        self.end_offset = header.base_offset + header.last_offset_delta + 1
        if header.producer_id <= NO_PRODUCER_ID:
            return None
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = Producer()
            self.mark()
        if header.producer_epoch != producer.epoch:
            producer.batches.clear()
            producer.epoch = header.producer_epoch
        producer.last_timestamp = header.max_timestamp
        is_transactional = header.attributes & TRANSACTIONAL_BIT
        if is_transactional:
            self._guards.end(header.producer_id, header.producer_epoch)
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
        if is_transactional and producer.txn_first_offset is None:
            producer.txn_first_offset = header.base_offset
            self.unstable.begin(header.producer_id, header.base_offset)
        return None

    def _end_txn(
        self, header: BatchHeader, producer: Producer, marker: EndMarker | None
    ) -> CompletedTxn | None:
        if marker is None:
            return None
        producer.coordinator_epoch = marker.coordinator_epoch
        first = producer.txn_first_offset
        if first is None:
            return None
        producer.txn_first_offset = None
        self.unstable.end(header.producer_id, first, header.last_offset)
        return CompletedTxn(
            header.producer_id, first, header.last_offset, aborted=not marker.committed
        )

    def stable_end_after(self, completed: CompletedTxn) -> int:
        """Return the last stable offset after this transaction ended; the transaction index stores
        it with an aborted one."""
        first_open = self.unstable.first_open
        return completed.last_offset + 1 if first_open is None else first_open

    def advance(self, high_watermark: int) -> None:
        """Forget transactions whose marker is below the high watermark: they do not hold back the
        last stable offset any more."""
        self.unstable.advance(high_watermark)

    def first_unstable_offset(self) -> int | None:
        """Return the first offset of a transaction that is open, or whose marker is not replicated
        yet."""
        return self.unstable.first_offset

    def oldest_open_ms(self) -> int | None:
        """Return the timestamp of the last batch of the open transaction that began first; None if
        there is none or the batch has no timestamp."""
        producer_id = self.unstable.oldest_producer
        timestamp = -1 if producer_id is None else self.producers[producer_id].last_timestamp
        return None if timestamp < 0 else timestamp

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were idle for long and have no open transaction."""
        for producer_id, producer in list(self.producers.items()):
            if (
                producer.txn_first_offset is None
                and now_ms - producer.last_timestamp >= expiration_ms
            ):
                del self.producers[producer_id]
        self._guards.expire(now_ms, expiration_ms)
        if self.expiring is not None and not self.producers and not self._guards:
            self.expiring.pop(self, None)

    def restore(self, producers: Iterable[tuple[int, Producer]]) -> None:
        """Add producers of a snapshot."""
        some = dict(producers)
        self.producers.update(some)
        self.mark()
        self.unstable.restore(
            (producer_id, producer.txn_first_offset)
            for producer_id, producer in some.items()
            if producer.txn_first_offset is not None
        )


def _fenced(producer_id: int, epoch: int, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} of epoch {epoch} was fenced by epoch {producer.epoch}",
    )
