"""Transactions that stay open, and hold back consumers that read committed records only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from penstock.health.findings import Finding, Level, Reason
from penstock.health.observations import Observation, Transaction
from penstock.health.partitions import check_partitions
from penstock.health.wording import clock_time, duration, listed

# Kafka's producers end or lose a transaction within this time by default (transaction.timeout.ms).
LONG_OPEN_MS = 60_000
# The coordinator aborts a transaction that reaches its timeout within seconds.
_ABORT_GRACE_MS = 30_000
# Timeouts of two-phase commit (KIP-939) do not expire.
_NEVER_MS = 2**31 - 1


def seen_twice(before: Transaction, after: Transaction) -> Transaction:
    """Return the second look at a transactional id, with the states of both looks if they show the
    same transaction. A producer that commits often is in PrepareCommit in many looks, each time
    with another transaction."""
    is_same = (before.producer_id, before.start_ms) == (after.producer_id, after.start_ms)
    return replace(after, states=(before.state, after.state) if is_same else (after.state,))


def check_transactions(seen: Observation) -> Iterator[Finding]:
    for transaction in seen.transactions:
        finding = _check(seen, transaction)
        if finding is not None:
            yield finding


def _check(seen: Observation, transaction: Transaction) -> Finding | None:
    name = transaction.transactional_id
    if name is None:
        return _hanging(transaction)
    if not transaction.exists:
        return _finding(
            transaction,
            "transaction-not-found",
            Level.PROBLEM,
            "is unknown to its coordinator",
            todo="check transactional.id of the producer; it is known from init_transactions on",
        )
    if transaction.error:
        return _finding(
            transaction,
            "transaction-coordinator-missing",
            Level.PROBLEM,
            "has no coordinator",
            (Reason("transaction-coordinator-missing", transaction.error),),
        )
    prepared = [state for state in transaction.states if state.startswith("Prepare")]
    if prepared and len(prepared) == len(transaction.states) > 1:
        at_fault = _partitions_at_fault(seen, transaction)
        return _finding(
            transaction,
            "transaction-not-completed",
            Level.PROBLEM,
            f"stays in {transaction.state}: its markers "
            + ("cannot be written" if at_fault else "are not written yet"),
            (*_where(transaction), *at_fault),
            "bring the leaders of these partitions back"
            if at_fault
            else "run penstock doctor again in a minute; if it still stays, look at the log of its "
            "coordinator",
        )
    if transaction.state != "Ongoing" or transaction.start_ms is None:
        return None
    return _ongoing(seen, transaction, seen.now_ms - transaction.start_ms)


def _hanging(transaction: Transaction) -> Finding:
    partition, start = next(iter(transaction.partitions.items()))
    return Finding(
        "transaction-hanging",
        Level.PROBLEM,
        (f"a transaction of producer {transaction.producer_id}",),
        "hangs: no coordinator knows it, so nothing ends it",
        _where(transaction),
        f"penstock transactions abort --topic {partition.topic} --partition {partition.partition} "
        f"--start-offset {start}",
    )


def _ongoing(seen: Observation, transaction: Transaction, open_ms: int) -> Finding | None:
    timeout_ms = transaction.timeout_ms
    abort = f"penstock transactions abort {quote(transaction.transactional_id or '')}"
    expires = timeout_ms is not None and timeout_ms < _NEVER_MS
    if expires and timeout_ms is not None and open_ms > timeout_ms + _ABORT_GRACE_MS:
        return _finding(
            transaction,
            "transaction-timed-out",
            Level.PROBLEM,
            f"has a transaction that is open for {duration(open_ms)}, longer than its timeout of "
            f"{duration(timeout_ms)}",
            (
                *_where(transaction),
                Reason("coordinator-late", "its coordinator should have aborted it"),
            ),
            f"look at the log of its coordinator; {abort}",
        )
    if open_ms < LONG_OPEN_MS:
        return None
    started = clock_time(seen.now_ms - open_ms, seen.now_ms, seen.zone)
    end = (
        f"its coordinator aborts it after {duration(timeout_ms)}"
        if expires and timeout_ms is not None
        else "it has no timeout (two-phase commit): only its producer ends it"
    )
    return _finding(
        transaction,
        "transaction-open",
        Level.WARNING,
        f"has a transaction that is open since {started}",
        (*_where(transaction), Reason("transaction-timeout", end)),
        f"check that its producer runs and commits; otherwise {abort}. For a Spark sink whose "
        "query does not come back: penstock transactions end",
    )


def _where(transaction: Transaction) -> tuple[Reason, ...]:
    if not transaction.partitions:
        return ()
    names = listed([f"{name} from offset {at:,}" for name, at in transaction.partitions.items()])
    words = f"read_committed consumers wait in {names}"
    return (Reason("open-transaction", words),)


def _partitions_at_fault(seen: Observation, transaction: Transaction) -> tuple[Reason, ...]:
    names = {str(partition) for partition in transaction.involved}
    for finding in check_partitions(seen):
        shared = [subject for subject in finding.subjects if subject in names]
        if shared:
            head = Reason(finding.code, f"{listed(shared)}: {finding.says}", finding.todo)
            return (head, *finding.reasons)
    return ()


def _finding(
    transaction: Transaction,
    code: str,
    level: Level,
    says: str,
    reasons: tuple[Reason, ...] = (),
    todo: str = "",
) -> Finding:
    subject = f"transactional id {transaction.transactional_id}"
    return Finding(code, level, (subject,), says, reasons, todo)
