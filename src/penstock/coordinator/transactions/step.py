"""Building a step of the transaction machine: records are replayed as they are written, and every
change is noted for undo. PURE.

All durable changes go through `write` and `remove`. They keep the soft state in step: an ongoing
transaction has a deadline, and a prepared one has its markers in progress.
"""

from __future__ import annotations

from functools import partial

from penstock.coordinator.runtime.step import (
    RECORD_OVERHEAD_BYTES,
    Now,
    Record,
    Reply,
    Step,
    Ticket,
    Undo,
)
from penstock.coordinator.transactions.records import record, tombstone
from penstock.coordinator.transactions.table import (
    MarkerPartitions,
    TransactionTable,
    WriteMarkers,
)
from penstock.coordinator.transactions.transaction import Transaction
from penstock.limits import BATCH_HEADER_BYTES, MAX_REMOVAL_BYTES, MAX_REMOVALS_PER_STEP


class NeedsProducerId(Exception):
    """The step needs a new producer id, and the shell has not given one."""


class TransactionStep:
    """One decision over `table`, at one time."""

    __slots__ = (
        "_new_producer_id",
        "_size",
        "effects",
        "log_lines",
        "now_ms",
        "records",
        "replies",
        "table",
        "undo",
        "wall_ms",
    )

    def __init__(
        self, table: TransactionTable, now: Now, new_producer_id: int | None = None
    ) -> None:
        self.table = table
        self.now_ms, self.wall_ms = now
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.effects: list[WriteMarkers] = []
        self.log_lines: list[str] = []
        self.undo = Undo()
        self._new_producer_id = new_producer_id
        self._size = BATCH_HEADER_BYTES

    def new_producer_id(self) -> int:
        if self._new_producer_id is None:
            raise NeedsProducerId
        return self._new_producer_id

    def write(self, transaction: Transaction) -> None:
        """Write a transaction's record, and replay it."""
        written, replayed = record(transaction, self.table.settings.transaction_version)
        self._save(written, replayed.transactional_id)
        self.table.by_id[replayed.transactional_id] = replayed
        self._follow(replayed)

    def remove(self, transactional_id: str) -> None:
        """Write the tombstone of a transactional id without a transaction, and replay it."""
        self._save(tombstone(transactional_id), transactional_id)
        del self.table.by_id[transactional_id]

    def _save(self, written: Record, transactional_id: str) -> None:
        self.records.append(written)
        self._size += len(written.key) + len(written.value or b"") + RECORD_OVERHEAD_BYTES
        self.undo.save(self.table.by_id, transactional_id)
        if transactional_id in self.table.unstarted:
            # From now on the step keeps its deadline and its markers.
            self.undo.save(self.table.unstarted, transactional_id)
            del self.table.unstarted[transactional_id]

    def _follow(self, transaction: Transaction) -> None:
        """Start or end what goes with the transaction's state."""
        table, transactional_id = self.table, transaction.transactional_id
        key, due_ms = (transactional_id,), table.deadlines.get((transactional_id,))
        if transaction.is_ongoing and due_ms is None:
            self.start(transaction)
        elif transaction.due_ms is None and due_ms is not None:
            self.undo.add(partial(table.deadlines.set, key, due_ms))
            table.deadlines.cancel(key)
        if transaction.is_prepared and transaction.partitions:
            self.start(transaction)
        elif transactional_id in table.markers:
            self.undo.save(table.markers, transactional_id)
            del table.markers[transactional_id]

    def start(self, transaction: Transaction) -> None:
        """Start the deadline of an ongoing transaction, or the markers of a prepared one."""
        table, transactional_id = self.table, transaction.transactional_id
        if transaction.due_ms is not None:
            key = (transactional_id,)
            self.undo.add(partial(table.deadlines.restore, key, table.deadlines.get(key)))
            # The clock of the broker that began it may be hours ahead of this one's (rule 26).
            left_ms = min(max(transaction.due_ms - self.wall_ms, 0), transaction.timeout_ms)
            table.deadlines.set(key, self.now_ms + left_ms)
        elif transaction.is_prepared:
            self.undo.save(table.markers, transactional_id)
            markers = _markers(transaction, table.coordinator_epoch)
            table.markers[transactional_id] = markers
            if markers.partitions:
                self.effects.append(markers)

    @property
    def has_room(self) -> bool:
        """True if a step that does many small things may do another."""
        limit = min(MAX_REMOVAL_BYTES, self.table.settings.max_batch_bytes // 2)
        return len(self.records) < MAX_REMOVALS_PER_STEP and self._size < limit

    def reply(self, ticket: Ticket, response: object) -> None:
        self.replies.append(Reply(ticket, response))

    def log(self, line: str) -> None:
        """Add a line for the node's log. Names come from clients, so control characters are
        escaped: none may begin a line."""
        self.log_lines.append(
            line if line.isprintable() else line.encode("unicode_escape").decode()
        )

    def build(self, immediate: bool = False) -> Step[WriteMarkers]:
        return Step(
            records=tuple(self.records),
            replies=tuple(self.replies),
            effects=tuple(self.effects),
            log_lines=tuple(self.log_lines),
            immediate=immediate,
            undo=self.undo,
        )


def _markers(transaction: Transaction, coordinator_epoch: int) -> WriteMarkers:
    return WriteMarkers(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.is_commit,
        coordinator_epoch,
        MarkerPartitions(transaction.partitions),
        transaction.version,
    )
