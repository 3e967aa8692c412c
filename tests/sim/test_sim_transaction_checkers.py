"""Each checker of transactions rejects histories written by hand that break its rule, and accepts
correct ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from penstock.ids import TopicPartition
from penstock.records.build import NewRecord, build_batch, end_transaction_marker
from penstock.sim.cluster.checkers import CHECKERS, exactly_once, stable_offsets, transactions
from penstock.sim.cluster.events import BecameLeader, Event
from penstock.sim.cluster.history import (
    Checker,
    CopyRoute,
    Events,
    History,
    ReplicaLog,
    Violation,
)
from penstock.sim.cluster.transaction_events import (
    CopyOffsetsFetched,
    EndFinished,
    EndStarted,
    IsolatedRead,
    ProducerInitialized,
    StableOffsetAdvanced,
    StableOffsetFetched,
    TransactionalSend,
    TransactionalSendAcknowledged,
    TransactionBegun,
    TransactionDecided,
    TransactionPrepared,
)

LEFT, RIGHT, COPY = (TopicPartition(name, 0) for name in ("left", "right", "copy"))
PRODUCER, COPIER = 7, 8
# The first transaction is committed, the second aborted. The third is a copy of the first.
A, B, C = b"tx0.1.1:1", b"tx0.1.1:2", b"tx0.1.2:1"
COPIED = b"copy0.1.1:1=" + A


class Data(NamedTuple):
    epoch: int
    values: tuple[bytes, ...]
    producer: int = PRODUCER


class Marker(NamedTuple):
    epoch: int
    commit: bool
    producer: int = PRODUCER


def log_of(*entries: Data | Marker) -> ReplicaLog:
    batches: list[tuple[int, int, bytes]] = []
    offset = 0
    for entry in entries:
        if isinstance(entry, Data):
            batch = build_batch(
                [NewRecord(None, value) for value in entry.values],
                base_offset=offset,
                producer_id=entry.producer,
                producer_epoch=entry.epoch,
                base_sequence=0,
                transactional=True,
            )
            count = len(entry.values)
        else:
            batch = end_transaction_marker(
                commit=entry.commit,
                producer_id=entry.producer,
                producer_epoch=entry.epoch,
                coordinator_epoch=0,
                timestamp=0,
                base_offset=offset,
            )
            count = 1
        batches.append((offset, offset + count, batch))
        offset += count
    return ReplicaLog(offset, tuple(batches))


LEFT_LOG = log_of(Data(0, (A,)), Marker(1, True), Data(1, (C,)), Marker(2, False))
RIGHT_LOG = log_of(Data(0, (B,)), Marker(1, True))
COPY_LOG = log_of(Data(0, (COPIED,), COPIER), Marker(1, True, COPIER))

BEGUN = (
    ProducerInitialized(1, "tx0", 1, PRODUCER, 0),
    TransactionBegun(2, "tx0.1.1", PRODUCER, 0, bumps=True),
    TransactionalSend(2, "tx0.1.1", LEFT, A),
    TransactionalSend(2, "tx0.1.1", RIGHT, B),
    TransactionalSendAcknowledged(3, "tx0.1.1", LEFT, A, 0),
    TransactionalSendAcknowledged(3, "tx0.1.1", RIGHT, B, 0),
)
COMMITTED = (
    EndStarted(4, "tx0.1.1", commit=True),
    TransactionPrepared(4, 1, 0, "tx0", PRODUCER, 0, commit=True, by_client=True),
    EndFinished(5, "tx0.1.1", commit=True, error=None),
)
ABORTED = (
    TransactionBegun(6, "tx0.1.2", PRODUCER, 1, bumps=True),
    TransactionalSend(6, "tx0.1.2", LEFT, C),
    EndStarted(7, "tx0.1.2", commit=False),
    TransactionPrepared(7, 1, 0, "tx0", PRODUCER, 1, commit=False, by_client=True),
    EndFinished(8, "tx0.1.2", commit=False, error=None),
)
COPY_BEGUN = (
    TransactionBegun(8, "copy0.1.1", COPIER, 0, bumps=True),
    TransactionalSend(8, "copy0.1.1", COPY, COPIED),
    EndStarted(9, "copy0.1.1", commit=True),
    EndFinished(9, "copy0.1.1", commit=True, error=None),
)
GROUP_PARTITION = TopicPartition("__consumer_offsets", 0)


def history(
    *more: Event,
    ended: Iterable[Event] = COMMITTED,
    left: ReplicaLog = LEFT_LOG,
    right: ReplicaLog = RIGHT_LOG,
) -> History:
    """A correct history, followed by other events."""
    return History(
        events=Events([*BEGUN, *ended, *ABORTED, *COPY_BEGUN, *more]),
        durable_topics=dict.fromkeys(("left", "right", "copy"), True),
        final_logs={LEFT: {1: left, 2: left}, RIGHT: {1: right}, COPY: {1: COPY_LOG}},
        final_committed={LEFT: [(0, A)], RIGHT: [(0, B)], COPY: [(0, COPIED)]},
        final_uncommitted={LEFT: [(0, A), (2, C)], RIGHT: [(0, B)], COPY: [(0, COPIED)]},
        final_stable={LEFT: {1: (4, 4), 2: (4, 4)}, GROUP_PARTITION: {1: (9, 9)}},
        copy=CopyRoute("left", "copy", "copiers"),
        final_copied={LEFT: 4},
        ended_at=99.0,
    )


def with_committed(partition: TopicPartition, *records: tuple[int, bytes]) -> History:
    made = history()
    made.final_committed[partition] = list(records)
    return made


def with_uncommitted(*records: tuple[int, bytes]) -> History:
    made = history()
    made.final_uncommitted[LEFT] = list(records)
    return made


def with_open(state: str) -> History:
    made = history()
    made.final_transactions["tx0"] = state
    return made


def with_stable(stable: int, high_watermark: int) -> History:
    made = history()
    made.final_stable[LEFT][2] = (stable, high_watermark)
    return made


def elected(node: int, epoch: int) -> list[Event]:
    """A broker becomes coordinator of all groups."""
    return [
        BecameLeader(2, node, TopicPartition("__consumer_offsets", index), epoch, 0, 0)
        for index in range(2)
    ]


def read(offset: int, value: bytes, *, committed: bool = True, visible: int = 9) -> IsolatedRead:
    return IsolatedRead(10, "reader", LEFT, offset, value, committed, visible)


REJECTED: list[tuple[Checker, History]] = [
    (transactions.no_aborted_read, history(read(2, C))),
    (transactions.no_aborted_read, with_committed(LEFT, (0, A), (2, C))),
    (transactions.no_aborted_read, history(ended=())),
    (transactions.no_committed_write_is_lost, with_committed(RIGHT)),
    (
        transactions.no_committed_write_is_lost,
        history(EndFinished(11, "tx0.1.1", commit=False, error=None)),
    ),
    (
        transactions.no_committed_write_is_lost,
        history(TransactionDecided(11, "tx0.1.2", commit=True)),
    ),
    (transactions.no_torn_transaction, with_committed(RIGHT)),
    (transactions.committed_reads_are_final, history(read(1, B))),
    (transactions.committed_reads_are_final, history(read(2, B, committed=False))),
    (transactions.committed_reads_skip_nothing, history(read(1, B))),
    (
        transactions.one_transaction_at_a_time,
        history(left=log_of(Data(0, (A, C)), Marker(1, True))),
    ),
    (
        transactions.one_transaction_at_a_time,
        history(left=log_of(Data(0, (A,)), Marker(1, True), Data(1, (A,)), Marker(2, True))),
    ),
    (
        transactions.markers_belong_to_their_transaction,
        history(right=log_of(Data(0, (B,)), Marker(0, True))),
    ),
    (
        transactions.markers_agree,
        history(right=log_of(Data(0, (B,)), Marker(1, False))),
    ),
    (
        transactions.markers_agree,
        history(TransactionPrepared(5, 2, 1, "tx0", PRODUCER, 0, commit=False, by_client=False)),
    ),
    (
        transactions.each_transaction_has_its_epoch,
        history(TransactionBegun(11, "tx0.1.3", PRODUCER, 1, bumps=True)),
    ),
    (
        transactions.only_its_client_ends_a_transaction,
        history(TransactionPrepared(7, 1, 0, "tx0", PRODUCER, 1, commit=True, by_client=True)),
    ),
    (
        transactions.fenced_producers_write_nothing,
        history(ProducerInitialized(1.5, "tx0", 2, PRODUCER, 5)),
    ),
    (
        transactions.fenced_producers_write_nothing,
        history(ProducerInitialized(3.5, "tx0", 2, PRODUCER, 5)),
    ),
    (transactions.no_duplicate_in_transactions, with_uncommitted((0, A), (1, A), (2, C))),
    (transactions.transactions_are_in_order, with_committed(LEFT, (0, C), (2, A))),
    (transactions.records_come_from_clients, with_uncommitted((0, A), (2, b"tx9.1.1:1"))),
    (
        stable_offsets.stable_offset_never_goes_back,
        history(
            StableOffsetAdvanced(4, 1, LEFT, 0, 2, 2), StableOffsetAdvanced(5, 1, LEFT, 0, 1, 3)
        ),
    ),
    (
        stable_offsets.stable_offset_never_goes_back,
        history(
            StableOffsetFetched(4, "reader", 1, LEFT, 0, 2),
            StableOffsetFetched(5, "reader", 1, LEFT, 0, 1),
        ),
    ),
    (
        stable_offsets.stable_records_are_decided,
        history(StableOffsetAdvanced(4, 1, LEFT, 0, 1, 1)),
    ),
    (
        stable_offsets.nothing_above_the_stable_offset_is_served,
        history(read(2, C, committed=False, visible=2)),
    ),
    (stable_offsets.no_transaction_hangs, with_open("Ongoing")),
    (stable_offsets.no_transaction_hangs, with_stable(2, 4)),
    (exactly_once.copies_are_exactly_once, with_committed(COPY)),
    (
        exactly_once.copies_are_exactly_once,
        with_committed(COPY, (0, COPIED), (2, b"copy0.1.2:1=" + A)),
    ),
    (
        exactly_once.copied_offsets_never_go_back,
        history(
            *elected(1, 0),
            CopyOffsetsFetched(4, "copiers", 3, 1, {LEFT: 2}),
            CopyOffsetsFetched(6, "copiers", 5, 1, {LEFT: 1}),
        ),
    ),
]
TESTED = (transactions, stable_offsets, exactly_once)


@pytest.mark.parametrize(
    ("checker", "bad"), REJECTED, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_history_that_breaks_the_rule_is_rejected(checker: Checker, bad: History) -> None:
    assert list(checker(bad))


def violations(history: History) -> list[tuple[str, Violation]]:
    return [
        (checker.__name__, violation)
        for _rule, checker in CHECKERS
        if checker.__module__ in [module.__name__ for module in TESTED]
        for violation in checker(history)
    ]


def test_a_correct_history_is_accepted() -> None:
    good = history(
        read(0, A),
        read(2, C, committed=False),
        # The step was lost before a marker was sent; a later coordinator decided as the log says.
        TransactionPrepared(4, 2, -1, "tx0", PRODUCER, 0, commit=False, by_client=False),
        ProducerInitialized(20, "tx0", 2, PRODUCER, 5),
        StableOffsetAdvanced(4, 1, LEFT, 0, 0, 1),
        StableOffsetAdvanced(5, 1, LEFT, 0, 2, 2),
        StableOffsetAdvanced(6, 2, LEFT, 1, 0, 1),
        StableOffsetFetched(4, "reader", 1, LEFT, 0, 2),
        StableOffsetFetched(5, "reader", 2, LEFT, 1, 1),
        *elected(1, 0),
        CopyOffsetsFetched(4, "copiers", 3, 1, {LEFT: 2}),
        # An isolated former coordinator.
        CopyOffsetsFetched(6, "copiers", 5, 2, {LEFT: 1}),
    )
    assert violations(good) == []


def test_a_commit_whose_outcome_is_unknown_may_have_happened_or_not() -> None:
    unknown = EndFinished(5, "tx0.1.1", commit=True, error="REQUEST_TIMED_OUT")
    ended = (COMMITTED[0], COMMITTED[1], unknown)
    assert violations(history(ended=ended)) == []
    aborted = history(
        TransactionPrepared(5, 2, 1, "tx0", PRODUCER, 0, commit=False, by_client=False),
        ended=ended,
        left=log_of(Data(0, (A,)), Marker(1, False), Data(1, (C,)), Marker(2, False)),
        right=log_of(Data(0, (B,)), Marker(1, False)),
    )
    aborted.final_committed |= {LEFT: [], RIGHT: [], COPY: []}
    assert [name for name, _violation in violations(aborted)] == ["no_committed_write_is_lost"]
    assert "copy0.1.1" in violations(aborted)[0][1].text


def test_a_transaction_of_the_old_protocol_is_exposed_to_a_request_that_was_not_answered() -> None:
    """As in Kafka: its epoch is that of the transaction before, whose EndTxn may come late."""
    torn = with_committed(RIGHT)
    torn.events[1] = TransactionBegun(2, "tx0.1.1", PRODUCER, 0, bumps=False)
    assert violations(torn)
    torn.unanswered[PRODUCER, 0] = 1
    assert violations(torn) == []
