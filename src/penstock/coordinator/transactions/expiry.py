"""Expiry of transactional ids that have not been used for transactional.id.expiration.ms. PURE.

Ids with an ongoing or prepared transaction do not expire. The ids are looked at once in an
interval, in steps of bounded size; the cursor stays between steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.coordinator.transactions.step import TransactionStep
from penstock.coordinator.transactions.table import TransactionTable
from penstock.limits import REFUSED_STEP_RETRY_MS, TRANSACTIONAL_IDS_PER_STEP


class Expiry:
    def __init__(self, table: TransactionTable) -> None:
        self._table = table
        self._due_ms = 0
        self._ids: Sequence[str] = ()
        self._done = 0

    def schedule(self, now_ms: int) -> None:
        """Schedule the first expiry after the table was loaded."""
        self._due_ms = now_ms + self._table.settings.id_expiration_interval_ms

    def interval_changed(self, now_ms: int) -> None:
        """Take a shorter interval into account."""
        self._due_ms = min(self._due_ms, now_ms + self._table.settings.id_expiration_interval_ms)

    @property
    def due_ms(self) -> int:
        return self._due_ms

    def run(self, step: TransactionStep) -> None:
        """Look at a bounded number of ids. The next step continues after them."""
        if step.now_ms < self._due_ms:
            return
        # A refused step is repeated later.
        step.undo.add(partial(setattr, self, "_due_ms", step.now_ms + REFUSED_STEP_RETRY_MS))
        step.undo.save(vars(self), "_ids")
        step.undo.save(vars(self), "_done")
        if self._done == len(self._ids):
            self._ids, self._done = list(self._table.by_id), 0
        end = min(self._done + TRANSACTIONAL_IDS_PER_STEP, len(self._ids))
        while self._done < end and step.has_room:
            self._expire(step, self._ids[self._done])
            self._done += 1
        if self._done == len(self._ids):
            self._ids, self._done = (), 0
            self._due_ms = step.now_ms + self._table.settings.id_expiration_interval_ms

    def _expire(self, step: TransactionStep, transactional_id: str) -> None:
        transaction = self._table.by_id.get(transactional_id)
        if (
            transaction is not None
            and not transaction.is_ongoing
            and not transaction.is_prepared
            and transaction.update_ms <= step.wall_ms - self._table.settings.id_expiration_ms
        ):
            step.remove(transactional_id)
            step.log(f"transactional id {transactional_id} has expired")
