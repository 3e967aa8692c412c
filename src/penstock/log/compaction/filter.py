"""Which records of a log compaction keeps. PURE: batches in, batches out, as Kafka's Cleaner
decides.

A record stays if no later one has its key, unless it is a tombstone whose delete horizon has
passed. Records of aborted transactions are removed immediately; the marker of a transaction is
removed when no record of it is left and its delete horizon has passed. Compaction writes the delete
horizon into the header of a batch when it first sees the tombstone or marker (KIP-534). The last
batch of every active producer stays, empty if necessary: it has the producer's last sequence.

Knows no files: the caller reads the log and calls `TransactionsSeen` and `Survivors` for each
batch, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from penstock.ids import Buffer
from penstock.limits import COMPACTION_KEY_OVERHEAD_BYTES
from penstock.log.index import AbortedTxn
from penstock.log.producers.replay import end_marker
from penstock.records.batch import BatchHeader
from penstock.records.record import Entry, Opened, open_batch
from penstock.records.rewriting import emptied, keep_entries


class LastOfProducer(NamedTuple):
    """What must stay of a producer: the batch that ends at this offset or, if it has no data, the
    marker of its epoch."""

    last_data_offset: int | None
    epoch: int


class TransactionsSeen:
    """Which transactions have records, during a scan from the log's first segment."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._coming = deque(sorted(aborted, key=lambda txn: txn.first_offset))
        # By producer: its aborted transaction at the current offset, and whether the scan has seen
        # a batch of it.
        self._aborted: dict[int, AbortedTxn] = {}
        self._seen: set[int] = set()
        self._committed: set[int] = set()
        # Aborted transactions that still have records: the transaction index keeps them.
        self.still_present: list[AbortedTxn] = []

    def _advance_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            txn = self._coming.popleft()
            self._aborted.setdefault(txn.producer_id, txn)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return True if a batch of records belongs to an aborted transaction."""
        self._advance_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_marker_idle(self, header: BatchHeader, batch: Buffer) -> bool:
        """Return True if no record is left of the transaction that a marker ends; False for control
        batches of other types."""
        self._advance_to(header.last_offset)
        if header.record_count == 0:
            return True
        marker = end_marker(header, batch)
        if marker is None:
            return False
        producer_id = header.producer_id
        if marker.committed:
            was_seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_seen
        txn = self._aborted.pop(producer_id, None)
        if txn is None or producer_id not in self._seen:
            return True
        self._seen.discard(producer_id)
        self.still_present.append(txn)
        return False


class LastOffsets:
    """The last offset of every key in the dirty part of a log, within a memory budget."""

    def __init__(self, budget_bytes: int) -> None:
        self.offsets: dict[bytes, int] = {}
        # Records after this offset were not read, and stay.
        self.latest = -1
        self._left = budget_bytes

    @property
    def is_full(self) -> bool:
        """True if the budget is used up. Checked before each batch, so that at least one batch is
        always added."""
        return self._left <= 0

    def add(self, header: BatchHeader, opened: Opened, first_offset: int) -> None:
        offsets, base = self.offsets, header.base_offset
        before = len(offsets)
        for delta, key, _has_value, _time, _start, _end in opened.entries:
            if key is not None and base + delta >= first_offset:
                offsets[key] = base + delta
        grown = len(offsets) - before
        if grown:
            self._left -= grown * COMPACTION_KEY_OVERHEAD_BYTES + sum(
                map(len, islice(reversed(offsets), grown))
            )


class Survivors:
    """What stays of each batch of a log, from its first segment on."""

    def __init__(
        self,
        last: LastOffsets,
        transactions: TransactionsSeen,
        producers: Mapping[int, LastOfProducer],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._last = last
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms

    def of(self, header: BatchHeader, batch: Buffer, *, keep_empty: bool) -> Buffer | None:
        """Return what stays of a batch; None if nothing does. With `keep_empty`, at least its
        header stays."""
        past_horizon = header.has_delete_horizon and header.base_timestamp <= self._now_ms
        idle_marker = header.is_control and self._transactions.is_marker_idle(header, batch)
        dropped = (
            idle_marker and past_horizon
            if header.is_control
            else self._transactions.is_aborted(header)
        )
        if not dropped:
            kept = self._kept(header, batch, past_horizon, idle_marker)
            if kept is not None:
                return kept
        return emptied(header) if keep_empty or self._is_last_of_producer(header) else None

    def _kept(
        self, header: BatchHeader, batch: Buffer, past_horizon: bool, idle_marker: bool
    ) -> Buffer | None:
        if header.base_offset > self._last.latest and not header.is_control:
            return batch if header.record_count else None
        opened = open_batch(batch, header)
        kept = (
            opened.entries
            if header.is_control
            else self._newest(header, opened.entries, past_horizon)
        )
        if not kept:
            return None
        needs_horizon = idle_marker or not all(entry[2] for entry in kept)
        horizon_ms = self._horizon_ms if needs_horizon and not header.has_delete_horizon else None
        if len(kept) == len(opened.entries) and horizon_ms is None:
            return batch
        return keep_entries(header, opened, kept, horizon_ms)

    def _newest(self, header: BatchHeader, entries: list[Entry], past_horizon: bool) -> list[Entry]:
        base, offsets, latest = header.base_offset, self._last.offsets, self._last.latest
        if header.last_offset > latest:
            # Only if the map was full before the dirty part ended.
            ahead = [entry for entry in entries if base + entry[0] > latest]
            return (
                self._newest_up_to(
                    entries[: len(entries) - len(ahead)], base, offsets, past_horizon
                )
                + ahead
            )
        return self._newest_up_to(entries, base, offsets, past_horizon)

    @staticmethod
    def _newest_up_to(
        entries: list[Entry], base: int, offsets: dict[bytes, int], past_horizon: bool
    ) -> list[Entry]:
        last_offset = offsets.get
        newest = [
            entry
            for entry in entries
            if entry[1] is not None and last_offset(entry[1], -1) <= base + entry[0]
        ]
        return [entry for entry in newest if entry[2]] if past_horizon else newest

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id) if header.has_producer else None
        if last is None:
            return False
        if last.last_data_offset is None:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.last_data_offset
