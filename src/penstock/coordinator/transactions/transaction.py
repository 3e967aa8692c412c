"""A transactional id with its producer and its transaction, and the transitions between its states.
PURE.

States, with Kafka's names:

    Empty            a producer was initialized; there is no transaction
    Ongoing          partitions were added to a transaction
    PrepareCommit    the outcome is decided; markers are being written
    PrepareAbort
    CompleteCommit   all partitions have their markers
    CompleteAbort

Laws:
- The epoch of a producer id never decreases. It is bumped when a producer is initialized, when an
  Ongoing transaction is aborted without its producer (fencing), and with transaction.version 2
  (KIP-890) at the end of every transaction, so that a late request of an earlier transaction is
  recognized.
- Markers carry the bumped epoch. 32767 is only ever in markers and after fencing: a client gets at
  most 32766. A producer whose epoch is exhausted gets a new producer id with epoch 0.
- A prepared transaction that a restarted client keeps (KIP-939) has two producers: that of its
  records, which the markers need, and the successor that the client got, which ends it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import NamedTuple

from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

# The largest epoch, and the largest one that a client gets.
MAX_EPOCH = 2**15 - 1
LAST_CLIENT_EPOCH = MAX_EPOCH - 1

# The timeout of transactions of two-phase commit, which do not time out (KIP-939).
NO_TIMEOUT_MS = 2**31 - 1

# From this transaction.version on, the end of a transaction bumps the epoch (KIP-890).
EPOCH_BUMP_VERSION = 2


class TransactionState(IntEnum):
    """Kafka's states. The last two are never written to the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that ListTransactions and DescribeTransactions show, for example "Ongoing"."""
        return _LABELS[self]


_LABELS = {state: state.name.title().replace("_", "") for state in TransactionState}
STATE_NAMES = frozenset(_LABELS.values())

_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

# Partition indexes by topic, in ascending order.
Partitions = Mapping[str, tuple[int, ...]]
_NO_PARTITIONS: Partitions = {}


class Producer(NamedTuple):
    """A producer id and its epoch."""

    id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        """True if a client cannot get a higher epoch of this id."""
        return self.epoch >= LAST_CLIENT_EPOCH


class Transaction(NamedTuple):
    """An immutable value; the methods return the next one.

    All fields but `last_producer_epoch` are in the log. `previous_producer_id` is the client's
    producer id before the last change. `next_*` is the client's producer from the completion on: it
    is set after an exhausted epoch, and while a client keeps a prepared transaction.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    update_ms: int
    state: TransactionState = TransactionState.EMPTY
    start_ms: int = NO_TIMESTAMP
    partitions: Partitions = _NO_PARTITIONS
    # transaction.version of the request that changed it.
    version: int = 0
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    # The epoch that the client sent with the InitProducerId or EndTxn that bumped it, by which a
    # retry is recognized.
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def producer(self) -> Producer:
        """The client's producer, from which requests are accepted."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return Producer(self.producer_id, self.producer_epoch)
        return Producer(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def is_ongoing(self) -> bool:
        return self.state is TransactionState.ONGOING

    @property
    def is_prepared(self) -> bool:
        """True while markers are being written."""
        return self.state in _PREPARED

    @property
    def is_complete(self) -> bool:
        return self.state in _COMPLETE

    @property
    def is_commit(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def is_kept(self) -> bool:
        """True if a restarted client keeps this transaction: it may only end it."""
        return self.is_ongoing and self.next_producer_id != NO_PRODUCER_ID

    @property
    def due_ms(self) -> int | None:
        """The wall clock time at which the transaction times out."""
        if not self.is_ongoing or self.timeout_ms == NO_TIMEOUT_MS:
            return None
        return self.start_ms + self.timeout_ms

    def missing(self, partitions: Partitions) -> Partitions:
        """Return the partitions that are not part of the transaction."""
        missing = {}
        for topic, indexes in partitions.items():
            unknown = set(indexes).difference(self.partitions.get(topic, ()))
            if unknown:
                missing[topic] = tuple(sorted(unknown))
        return missing

    # Transitions

    def initialized(
        self, producer: Producer, *, last_epoch: int, timeout_ms: int, wall_ms: int
    ) -> Transaction:
        """Assign a producer to the client; there is no transaction."""
        return Transaction(
            self.transactional_id,
            *producer,
            timeout_ms,
            wall_ms,
            previous_producer_id=self.producer_id,
            last_producer_epoch=last_epoch,
            version=self.version,
        )

    def kept(
        self, producer: Producer, *, last_epoch: int, wall_ms: int, two_phase: bool = False
    ) -> Transaction:
        """Assign a producer to the client that keeps the ongoing transaction (KIP-939). The timeout
        stays, unless the client takes part in two-phase commit: then neither this transaction nor
        its next ones time out."""
        return self._replace(
            timeout_ms=NO_TIMEOUT_MS if two_phase else self.timeout_ms,
            previous_producer_id=self.producer.id,
            next_producer_id=producer.id,
            next_producer_epoch=producer.epoch,
            last_producer_epoch=last_epoch,
            update_ms=wall_ms,
        )

    def with_partitions(self, partitions: Partitions, *, version: int, wall_ms: int) -> Transaction:
        """Add partitions that the transaction lacks, and begin it with the first."""
        merged = dict(self.partitions)
        for topic, indexes in partitions.items():
            merged[topic] = tuple(sorted((*merged.get(topic, ()), *indexes)))
        return self._replace(
            state=TransactionState.ONGOING,
            partitions=merged,
            start_ms=self.start_ms if self.is_ongoing else wall_ms,
            update_ms=wall_ms,
            version=version,
            previous_producer_id=self.producer_id,
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def ended(
        self, commit: bool, successor: Producer, *, version: int, marker_epoch: int, wall_ms: int
    ) -> Transaction:
        """Decide the outcome. The client continues as `successor`."""
        is_same = successor == (self.producer_id, marker_epoch)
        # Kafka writes no epoch of a new producer id, which is 0.
        is_new = not self.is_kept and not is_same
        return self._replace(
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            producer_epoch=marker_epoch,
            # The client may abort a transaction to which it added nothing (KIP-890).
            start_ms=self.start_ms if self.is_ongoing else wall_ms,
            update_ms=wall_ms,
            version=version,
            previous_producer_id=self.producer.id,
            next_producer_id=NO_PRODUCER_ID if is_same else successor.id,
            next_producer_epoch=NO_PRODUCER_EPOCH if is_same or is_new else successor.epoch,
        )

    def completed(self, wall_ms: int) -> Transaction:
        """All partitions have their markers."""
        producer, previous_id = self.producer, self.previous_producer_id
        completed = self._replace(
            state=(
                TransactionState.COMPLETE_COMMIT
                if self.is_commit
                else TransactionState.COMPLETE_ABORT
            ),
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            partitions=_NO_PARTITIONS,
            update_ms=wall_ms,
            previous_producer_id=self.producer_id if previous_id == NO_PRODUCER_ID else previous_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
        )
        return completed._replace(last_producer_epoch=completed.ended_epoch)

    @property
    def ended_epoch(self) -> int:
        """The epoch with which the client ended a complete transaction, if that has bumped it. A
        client that has not received the response initializes itself with it (KIP-360)."""
        if not self.is_complete or self.version < EPOCH_BUMP_VERSION:
            return self.last_producer_epoch
        if self.producer_epoch > 0:
            return self.producer_epoch - 1
        return (
            LAST_CLIENT_EPOCH
            if self.previous_producer_id not in (NO_PRODUCER_ID, self.producer_id)
            else NO_PRODUCER_EPOCH
        )


def by_topic(partitions: Collection[TopicPartition]) -> Partitions:
    grouped: dict[str, set[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, set()).add(index)
    return {topic: tuple(sorted(indexes)) for topic, indexes in grouped.items()}
