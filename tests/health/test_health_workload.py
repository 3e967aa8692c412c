"""Groups that do not progress, transactions that stay open, and Spark queries that fall behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.health.findings import Level
from penstock.health.observations import (
    Group,
    GroupOffset,
    Member,
    Observation,
    Offsets,
    SparkQuery,
    Transaction,
)
from penstock.health.transactions import seen_twice
from penstock.ids import TopicPartition
from tests.health.healthy import NOW_MS, PAYMENTS, at, broker, found, healthy, partition, words

ALICE = Member("m-1", "alice", "10.0.0.7", 6)
STABLE = ("Stable", "Stable")
LOG = Offsets(100, 1_000, 1_000, rate=100.0)


def group(offset: GroupOffset | None = None, **fields: Any) -> Group:
    seen = Group(
        "billing",
        STABLE,
        (ALICE,),
        {PAYMENTS: offset or GroupOffset(990, 900, LOG, 910)},
        over_ms=10_000,
        named=True,
    )
    return replace(seen, **fields)


def seen_with(*groups: Group, **fields: Any) -> Observation:
    return healthy(groups=groups, **fields)


def test_a_group_that_reads_has_no_findings() -> None:
    assert found(seen_with(group())) == {}


@pytest.mark.parametrize(
    ("seen", "code", "level"),
    [
        pytest.param(group(exists=False), "group-not-found", Level.PROBLEM, id="not found"),
        pytest.param(
            group(states=("PreparingRebalance",) * 3),
            "group-rebalancing",
            Level.PROBLEM,
            id="classic, rebalancing",
        ),
        pytest.param(
            group(states=("Reconciling",) * 3),
            "group-rebalancing",
            Level.PROBLEM,
            id="consumer protocol, rebalancing",
        ),
        pytest.param(
            group(members=(), states=("Empty", "Empty")), "group-empty", Level.PROBLEM, id="empty"
        ),
        pytest.param(
            group(GroupOffset(1_000, 1_000, LOG, 1_000), members=()),
            "group-empty",
            Level.WARNING,
            id="empty, nothing to read",
        ),
        pytest.param(
            group(GroupOffset(10, 10, LOG, 910)),
            "offset-before-start",
            Level.PROBLEM,
            id="committed offset before the log's start",
        ),
        pytest.param(
            group(GroupOffset(2_000, 2_000, LOG, 910)),
            "offset-beyond-end",
            Level.PROBLEM,
            id="committed offset beyond the log's end",
        ),
        pytest.param(
            group(GroupOffset(5)), "offset-of-deleted-topic", Level.NOTE, id="topic was deleted"
        ),
        pytest.param(
            group(members=(ALICE, replace(ALICE, client_id="bob", partitions=0))),
            "more-consumers-than-partitions",
            Level.WARNING,
            id="more consumers than partitions",
        ),
        pytest.param(
            group(GroupOffset(500, 500, LOG, 900, unread_age_ms=120_000)),
            "group-stuck",
            Level.PROBLEM,
            id="commits nothing",
        ),
        pytest.param(
            group(GroupOffset(500, 490, LOG, 900, unread_age_ms=120_000)),
            "lag-grows",
            Level.PROBLEM,
            id="reads more slowly than is written",
        ),
    ],
)
def test_a_group_that_does_not_progress(seen: Group, code: str, level: Level) -> None:
    findings = found(seen_with(seen))
    assert set(findings) == {code}
    assert findings[code].level is level
    assert findings[code].subjects == ("group billing",)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(group(states=("PreparingRebalance", "Stable")), id="a rebalance that ended"),
        pytest.param(
            group(states=("PreparingRebalance",) * 2, over_ms=2_000), id="a short rebalance"
        ),
        pytest.param(group(members=(), named=False), id="empty, and nobody asks for it"),
        pytest.param(
            group(members=(ALICE, replace(ALICE, client_id="bob", partitions=None))),
            id="a member whose assignment cannot be read",
        ),
        pytest.param(
            group(GroupOffset(900, 900, LOG, 910, unread_age_ms=4_000)), id="between two commits"
        ),
        pytest.param(
            group(GroupOffset(700, 500, LOG, 900, unread_age_ms=120_000)), id="it catches up"
        ),
    ],
)
def test_what_is_no_finding(seen: Group) -> None:
    assert found(seen_with(seen)) == {}


def test_the_words_of_a_group_that_falls_behind() -> None:
    seen = seen_with(group(GroupOffset(500, 490, LOG, 900, unread_age_ms=120_000)))
    assert words(seen)["lag-grows"] == (
        "group billing falls behind in payments-3, with 500 records to read: in 10 s it read 10 of "
        "100 new records, and the first unread record is 2 min old"
    )


def test_a_group_without_coordinator_has_the_reasons_of_its_partition() -> None:
    offsets = TopicPartition("__consumer_offsets", 7)
    seen = seen_with(
        group(error="group billing has no coordinator at present", coordinator_partition=offsets),
        partitions={offsets: partition(offsets, leader=-1, isr=(), elr=(3,))},
        brokers={1: broker(1), 2: broker(2), 3: broker(3, fenced=True)},
    )
    chain = words(seen)["group-coordinator-missing"]
    assert "__consumer_offsets-7 has no leader" in chain
    assert "the controller has fenced broker 3" in chain


def blocked(transaction: Transaction) -> Observation:
    log = Offsets(0, 1_000, 600)
    waiting = group(GroupOffset(600, 600, log, 900, unread_age_ms=200_000))
    return seen_with(waiting, transactions=(transaction,))


def test_a_group_that_waits_for_a_hanging_transaction() -> None:
    findings = found(blocked(Transaction(None, 4242, partitions={PAYMENTS: 600})))
    assert set(findings) == {"group-blocked-by-transaction", "transaction-hanging"}
    assert findings["transaction-hanging"].todo == (
        "penstock transactions abort --topic payments --partition 3 --start-offset 600"
    )


# Transactions


def transaction(**fields: Any) -> Transaction:
    seen = Transaction(
        "payer-1", 7, "Ongoing", at("12:00:00"), 900_000, {PAYMENTS: 600}, ("Ongoing", "Ongoing")
    )
    return replace(seen, **fields)


@pytest.mark.parametrize(
    ("seen", "code", "level"),
    [
        pytest.param(transaction(), "transaction-open", Level.WARNING, id="open for minutes"),
        pytest.param(
            transaction(timeout_ms=60_000), "transaction-timed-out", Level.PROBLEM, id="timed out"
        ),
        pytest.param(
            transaction(timeout_ms=2**31 - 1), "transaction-open", Level.WARNING, id="two-phase"
        ),
        pytest.param(
            transaction(state="PrepareCommit", states=("PrepareCommit",) * 2),
            "transaction-not-completed",
            Level.PROBLEM,
            id="markers cannot be written",
        ),
        pytest.param(
            transaction(exists=False), "transaction-not-found", Level.PROBLEM, id="not found"
        ),
        pytest.param(
            transaction(error="no coordinator"),
            "transaction-coordinator-missing",
            Level.PROBLEM,
            id="no coordinator",
        ),
    ],
)
def test_a_transaction_that_hangs(seen: Transaction, code: str, level: Level) -> None:
    findings = found(healthy(transactions=(seen,)))
    assert set(findings) == {code}
    assert findings[code].level is level


@pytest.mark.parametrize(
    "seen",
    [
        transaction(start_ms=NOW_MS - 5_000),
        transaction(state="CompleteCommit", states=("Ongoing", "CompleteCommit")),
        transaction(state="Ongoing", states=("PrepareCommit", "Ongoing"), start_ms=NOW_MS),
        transaction(state="Empty", start_ms=None),
    ],
)
def test_transactions_that_progress(seen: Transaction) -> None:
    assert found(healthy(transactions=(seen,))) == {}


def test_a_producer_that_commits_often_is_completing_in_both_looks() -> None:
    first = transaction(state="PrepareCommit", start_ms=NOW_MS - 2_100)
    second = transaction(state="PrepareCommit", start_ms=NOW_MS - 20)
    assert found(healthy(transactions=(seen_twice(first, second),))) == {}
    stuck = found(healthy(transactions=(seen_twice(first, first),)))
    assert set(stuck) == {"transaction-not-completed"}


def test_a_command_to_copy_is_quoted_for_a_shell() -> None:
    seen = healthy(transactions=(transaction(transactional_id="a; rm -rf b"),))
    assert "abort 'a; rm -rf b'." in found(seen)["transaction-open"].todo


def test_a_transaction_that_cannot_complete_names_the_partition_without_leader() -> None:
    seen = healthy(
        partitions={PAYMENTS: partition(leader=-1, isr=(3,))},
        transactions=(
            transaction(
                state="PrepareAbort",
                states=("PrepareAbort",) * 2,
                partitions={},
                involved=(PAYMENTS,),
            ),
        ),
    )
    stays = words(seen)["transaction-not-completed"]
    assert "its markers cannot be written" in stays
    assert "payments-3: has no leader" in stays


def test_a_transaction_that_completes_late_blames_no_partition() -> None:
    late = transaction(state="PrepareCommit", states=("PrepareCommit",) * 2, partitions={})
    finding = found(healthy(transactions=(late,)))["transaction-not-completed"]
    assert "its markers are not written yet" in finding.says
    assert "leaders of these partitions" not in finding.todo


# Spark queries


def query(**fields: Any) -> SparkQuery:
    seen = SparkQuery(
        "enrich",
        committed_batch=41,
        planned_batch=41,
        committed_ms=NOW_MS - 3_000,
        rate=100.0,
        batch_ms=5_000.0,
        offsets={PAYMENTS: 900},
        ends={PAYMENTS: LOG},
    )
    return replace(seen, **fields)


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        pytest.param(
            query(rate=20.0, ends={PAYMENTS: Offsets(0, 90_000, 90_000, 100.0)}),
            "query-falls-behind",
            id="reads more slowly than is written",
        ),
        pytest.param(
            query(committed_ms=NOW_MS - 600_000, planned_batch=42),
            "query-stalled",
            id="a batch hangs",
        ),
        pytest.param(query(committed_ms=NOW_MS - 600_000), "query-stalled", id="does not run"),
        pytest.param(
            query(committed_batch=None, planned_batch=None, offsets={}),
            "query-never-ran",
            id="no batch yet",
        ),
        pytest.param(
            query(offsets={PAYMENTS: 50}), "query-lost-records", id="records were deleted"
        ),
        pytest.param(
            query(offsets={PAYMENTS: 5_000}), "query-beyond-end", id="topic created again"
        ),
        pytest.param(query(ends={}), "query-reads-deleted-topic", id="topic was deleted"),
    ],
)
def test_a_query_that_falls_behind(seen: SparkQuery, code: str) -> None:
    assert set(found(healthy(queries=(seen,)))) == {code}


@pytest.mark.parametrize(
    "seen",
    [
        query(),
        query(committed_ms=NOW_MS - 600_000, offsets={PAYMENTS: 1_000}),
        query(rate=20.0, ends={PAYMENTS: Offsets(0, 1_000, 1_000, 100.0)}),
    ],
)
def test_a_query_that_keeps_up(seen: SparkQuery) -> None:
    assert found(healthy(queries=(seen,))) == {}
