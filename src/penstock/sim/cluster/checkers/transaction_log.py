"""Transactions as the final logs of their topics have them, and as their clients saw them.

A span is a producer's transaction in one partition, from its first batch to its marker.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.ids import TopicPartition
from penstock.records.batch import read_header
from penstock.records.record import ControlRecord, control_kind, rows_of
from penstock.sim.cluster.history import History
from penstock.sim.cluster.transaction_events import (
    EndFinished,
    EndStarted,
    TransactionalSend,
    TransactionalSendAcknowledged,
    TransactionBegun,
    TransactionDecided,
    txn_of,
)


@dataclass(slots=True)
class Span:
    """`marker_offset` is None while the transaction is open."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    first_offset: int
    values: list[bytes] = field(default_factory=list)
    marker_offset: int | None = None
    marker_epoch: int = -1
    commit: bool = False

    @property
    def txns(self) -> list[str]:
        """The transactions that its records belong to, which should be one."""
        return list(dict.fromkeys(txn_of(value) for value in self.values))


@dataclass(slots=True)
class Txn:
    """A transaction as its client saw it. `must_commit` says that its commit was acknowledged or
    decided, `may_commit` that it was asked for, `is_aborted` that an abort was acknowledged."""

    begun: TransactionBegun
    sent: list[TransactionalSend] = field(default_factory=list)
    acknowledged: list[TransactionalSendAcknowledged] = field(default_factory=list)
    ends: list[EndStarted] = field(default_factory=list)
    must_commit: bool = False
    may_commit: bool = False
    is_aborted: bool = False
    # A late request of an earlier transaction of the same epoch may have changed it.
    is_exposed: bool = False
    at: float = 0.0

    @property
    def name(self) -> str:
        return self.begun.txn


def transactions_of(history: History) -> dict[str, Txn]:
    """Return the transactions of all clients by name, in the order in which they began."""
    found: dict[str, Txn] = {}
    for event in history.events:
        match event:
            case TransactionBegun(at, txn):
                found[txn] = Txn(event, at=at)
            case TransactionalSend():
                found[event.txn].sent.append(event)
            case TransactionalSendAcknowledged():
                found[event.txn].acknowledged.append(event)
            case TransactionDecided(_at, txn, True):
                found[txn].must_commit = found[txn].may_commit = True
            case EndStarted(_at, txn, commit):
                found[txn].ends.append(event)
                found[txn].may_commit |= commit
            case EndFinished(at, txn, commit, None):
                found[txn].at = at
                if commit:
                    found[txn].must_commit = True
                else:
                    found[txn].is_aborted = True
            case _:
                pass
    for each in found.values():
        producer = (each.begun.producer_id, each.begun.epoch)
        each.is_exposed = not each.begun.bumps and history.unanswered.get(producer, 0) > 0
    return found


def spans_of(history: History, partition: TopicPartition) -> list[Span]:
    """Return the transactions in a partition's log, in the order of their first offsets. All
    replicas have the same log (rule 9)."""
    replicas = history.final_logs.get(partition, {})
    if not replicas:
        return []
    log = max(replicas.values(), key=lambda replica: replica.high_watermark)
    spans: list[Span] = []
    still_open: dict[int, Span] = {}
    for base_offset, _next, data in log.batches:
        header = read_header(data)
        if header.is_control:
            ended = still_open.pop(header.producer_id, None)
            if ended is not None:
                ended.marker_offset = base_offset
                ended.marker_epoch = header.producer_epoch
                key = rows_of(data, header, 0)[0][2]
                ended.commit = control_kind(key) is ControlRecord.COMMIT
        elif header.is_transactional:
            span = still_open.get(header.producer_id)
            if span is None:
                span = Span(partition, header.producer_id, header.producer_epoch, base_offset)
                still_open[header.producer_id] = span
                spans.append(span)
            span.values += [row[3] or b"" for row in rows_of(data, header, 0)]
    return spans
