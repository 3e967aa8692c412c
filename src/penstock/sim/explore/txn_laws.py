"""The laws of the transaction explorer (rules 12 and 15), over the records that a coordinator
writes, the requests that made it write them, and the markers that it sends.

The outcome of a transaction is decided once, by the request of its own client, by its timeout or by
a new client; markers follow the committed outcome, and completion follows the markers.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.coordinator.runtime.step import PLAIN
from penstock.coordinator.transactions.machine import TransactionMachine
from penstock.coordinator.transactions.records import decode
from penstock.coordinator.transactions.table import WriteMarkers
from penstock.coordinator.transactions.transaction import (
    NO_TIMEOUT_MS,
    Transaction,
    TransactionState,
)
from penstock.ids import TopicPartition
from penstock.sim.explore.shard_partition import MemoryShardPartition
from penstock.sim.explore.shard_runner import REPLAY
from penstock.sim.explore.walk import LawBroken

TRANSITIONS = "transactions change their states in Kafka's order"
EPOCHS = "the epoch of a producer never decreases"
OWN_EPOCH = "a transaction has an epoch of its own"
OWN_END = "only its client ends a transaction"
FENCED = "a fenced producer changes nothing"
MARKERS_AFTER_COMMIT = "markers leave after the outcome is committed"
ONE_OUTCOME = "a transaction has one outcome"
COMPLETE_AFTER_MARKERS = "a transaction is complete when all partitions have markers"
ACKNOWLEDGED = "an acknowledged outcome is never lost"
NO_TIMEOUT = "two-phase commit has no timeout"
STUCK = "every request gets a reply"
ENDED = "every transaction ends"

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

# None: the transactional id is not known, or has expired.
_NEXT: dict[TransactionState | None, tuple[TransactionState | None, ...]] = {
    None: (EMPTY,),
    EMPTY: (EMPTY, ONGOING, PREPARE_ABORT, None),
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (COMPLETE_COMMIT,),
    PREPARE_ABORT: (COMPLETE_ABORT,),
    COMPLETE_COMMIT: (EMPTY, ONGOING, PREPARE_ABORT, None),
    COMPLETE_ABORT: (EMPTY, ONGOING, PREPARE_ABORT, None),
}


class Sender(NamedTuple):
    """Who sent the request that is being decided: a life of a client, the number of its
    transaction, and the producer that it sent. `bumps` says that its epoch is of one
    transaction."""

    life: int
    number: int
    producer_id: int
    epoch: int
    bumps: bool
    ends: bool


class TxnLaws:
    """`shadow` replays every record that the shard appends."""

    def __init__(self, partition: MemoryShardPartition, shadow: TransactionMachine) -> None:
        self._partition = partition
        self.shadow = shadow
        self._replayed = 0
        self.is_checking_traces = False
        # The request that is being decided, or None for a timeout or a completion.
        self.sender: Sender | None = None
        # A new client is being initialized, which aborts the transaction of the last one.
        self.is_initializing = False
        # The client transaction that each producer and epoch of transaction.version 2 belongs to.
        self._owners: dict[tuple[int, int], tuple[int, int]] = {}
        # (producer id, marker epoch, partition) -> outcome, of version 2; and all written markers.
        self._outcomes: dict[tuple[int, int, TopicPartition], bool] = {}
        self._written: set[tuple[int, int, bool, TopicPartition]] = set()
        # Producer and epoch of a client's transaction -> its acknowledged outcome.
        self.acknowledged: dict[tuple[str, int, int], bool] = {}

    def whole_state(self, machine: TransactionMachine, *, with_deadlines: bool) -> object:
        table = machine.table
        return (
            dict(table.by_id),
            dict(table.markers),
            list(table.unstarted) if with_deadlines else None,
            dict(table.deadlines._due) if with_deadlines else None,
        )

    def restart(self, shadow: TransactionMachine) -> None:
        """The shard is loaded again from what is left of the log."""
        self.shadow, self._replayed = shadow, self._partition.log_end_offset
        for record in self._partition.records:
            shadow.replay(record, PLAIN)

    def loaded(self, machine: TransactionMachine) -> None:
        self._compare(machine)
        self.check_acknowledged()

    def stepped(self, machine: TransactionMachine) -> None:
        table = self.shadow.table
        for record in self._partition.records[self._replayed :]:
            transactional_id, _value = decode(record)
            before = table.by_id.get(transactional_id)
            self.shadow.replay(record, PLAIN)
            self._check_transition(transactional_id, before, table.by_id.get(transactional_id))
        self._replayed = self._partition.log_end_offset
        self._compare(machine)

    def _compare(self, machine: TransactionMachine) -> None:
        live, replayed = machine.table.by_id, self.shadow.table.by_id
        for transactional_id in sorted({*live, *replayed}):
            ours, theirs = live.get(transactional_id), replayed.get(transactional_id)
            if _durable(ours) != _durable(theirs):
                raise LawBroken(REPLAY, f"live {ours}, replayed {theirs}")

    def own(self, sender: Sender, producer_id: int, epoch: int) -> None:
        """A client keeps the transaction of this producer and epoch."""
        self._owners[producer_id, epoch] = (sender.life, sender.number)

    # Records

    def _check_transition(
        self, name: str, before: Transaction | None, after: Transaction | None
    ) -> None:
        old, new = before and before.state, after and after.state
        if new not in _NEXT[old]:
            raise LawBroken(TRANSITIONS, f"{name}: {_label(old)} became {_label(new)}")
        if before is None or after is None:
            return
        if before.producer_id == after.producer_id and after.producer_epoch < before.producer_epoch:
            raise LawBroken(
                EPOCHS, f"{name}: epoch {after.producer_epoch} after {before.producer_epoch}"
            )
        self._check_sender(name, before, after)
        if before.is_ongoing and after.is_prepared:
            self._check_end(name, before)
        elif before.is_prepared and after.is_complete:
            self._check_complete(name, before)

    def _check_sender(self, name: str, before: Transaction, after: Transaction) -> None:
        """A request that changes a transaction has its client's current producer."""
        sender = self.sender
        if sender is None:
            return
        if (sender.producer_id, sender.epoch) != before.producer:
            raise LawBroken(
                FENCED,
                f"{name}: a request of producer {sender.producer_id}, epoch {sender.epoch} changed "
                f"a transaction of {before.producer}",
            )
        if sender.bumps and after.is_ongoing:
            key = (after.producer_id, after.producer_epoch)
            number = (sender.life, sender.number)
            owner = self._owners.setdefault(key, number)
            if owner != number:
                raise LawBroken(
                    OWN_EPOCH, f"{name}: transactions {owner} and {number} both have {key}"
                )

    def _check_end(self, name: str, before: Transaction) -> None:
        sender = self.sender
        owner = self._owners.get((before.producer_id, before.producer_epoch))
        if (
            sender is not None
            and sender.bumps
            and owner is not None
            and (owner != (sender.life, sender.number) or not sender.ends)
        ):
            raise LawBroken(OWN_END, f"{name}: {sender} ended the transaction of client {owner}")
        if sender is None and before.timeout_ms == NO_TIMEOUT_MS and not self.is_initializing:
            raise LawBroken(NO_TIMEOUT, f"{name}: {before} was aborted")

    def _check_complete(self, name: str, before: Transaction) -> None:
        for topic, indexes in before.partitions.items():
            for index in indexes:
                marker = (
                    before.producer_id,
                    before.producer_epoch,
                    before.is_commit,
                    TopicPartition(topic, index),
                )
                if marker not in self._written:
                    raise LawBroken(COMPLETE_AFTER_MARKERS, f"{name}: {marker[3]} has no marker")

    # Markers

    def performed(self, effect: WriteMarkers) -> None:
        """The shard sends markers."""
        offset, found = -1, None
        for index, record in enumerate(self._partition.records):
            transactional_id, transaction = decode(record)
            if transactional_id == effect.transactional_id:
                offset, found = index, transaction
        if found is None or not found.is_prepared or found.is_commit != effect.commit:
            raise LawBroken(MARKERS_AFTER_COMMIT, f"{effect} although the log has {found}")
        if offset >= self._partition.committed:
            raise LawBroken(MARKERS_AFTER_COMMIT, f"{effect} left before its record was committed")
        if effect.transaction_version >= 2:
            for partition in effect.partitions:
                key = (effect.producer_id, effect.producer_epoch, partition)
                if self._outcomes.setdefault(key, effect.commit) != effect.commit:
                    raise LawBroken(ONE_OUTCOME, f"{effect} after the other outcome")

    def written(self, effect: WriteMarkers, partition: TopicPartition) -> None:
        self._written.add((effect.producer_id, effect.producer_epoch, effect.commit, partition))

    # Replies

    def check_acknowledged(self) -> None:
        """No record contradicts an acknowledged outcome: the transaction of an epoch that was ended
        is not open again, and has no other outcome."""
        for (name, producer_id, epoch), commit in self.acknowledged.items():
            found = self.shadow.table.by_id.get(name)
            if found is None or found.producer_id != producer_id:
                continue
            if found.is_ongoing and found.producer_epoch == epoch:
                raise LawBroken(ACKNOWLEDGED, f"{name}: epoch {epoch} was ended, and is {found}")
            is_next = found.producer_epoch == epoch + 1 and (found.is_prepared or found.is_complete)
            if is_next and found.version >= 2 and found.is_commit != commit:
                raise LawBroken(
                    ACKNOWLEDGED, f"{name}: epoch {epoch} ended with commit={commit}, not {found}"
                )


def _durable(transaction: Transaction | None) -> object:
    """Return what the log holds."""
    return transaction and transaction._replace(last_producer_epoch=-1)


def _label(state: TransactionState | None) -> str:
    return "unknown" if state is None else state.label
