"""The chain of reasons for brokers that are down and partitions that are not in sync."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.health.causes import broker_causes
from penstock.health.examine import examine
from penstock.health.findings import Level
from penstock.health.observations import (
    Event,
    EventKind,
    Flushes,
    LogDir,
    Node,
    NodeState,
    Observation,
    Reach,
    Replica,
)
from penstock.ids import TopicPartition
from tests.health.healthy import (
    BROKERS,
    NOW_MS,
    PAYMENTS,
    at,
    broker,
    found,
    healthy,
    partition,
    probe,
    topic,
    words,
)


def with_broker_2(**fields: object) -> Observation:
    seen = healthy()
    return replace(seen, brokers={**seen.brokers, 2: broker(2, **fields)})


def without_2_in_sync(seen: Observation) -> Observation:
    partitions = {PAYMENTS: partition(isr=(1, 3))}
    return replace(seen, partitions=partitions, topics={"payments": topic(min_insync=1)})


def test_a_healthy_cluster_has_no_findings() -> None:
    assert examine(healthy()) == []


def test_the_chain_of_an_under_replicated_partition() -> None:
    """The sentence of the issue."""
    seen = without_2_in_sync(
        with_broker_2(
            last_heartbeat_ms=at("12:02:58"), last_metadata_fetch_ms=at("12:02:58"), probe=None
        )
    )
    seen = replace(
        seen,
        partitions={
            PAYMENTS: partition(isr=(1, 3), progress={2: Replica(last_fetch_ms=at("12:02:58"))})
        },
        nodes={2: Node(2, None, last_log_line="compacting orders-1")},
        events=(
            Event(
                at("12:03:10"), 1, EventKind.ISR, "payments-3", "in-sync replicas are [1, 3]", (2,)
            ),
        ),
    )
    assert words(seen)["under-replicated"] == (
        "payments-3 is under-replicated since 12:03:10: broker 2 has not fetched for 14 s; its "
        "heartbeats stopped at 12:02:58; its last log line was: compacting orders-1"
    )


FENCED = Event(at("12:03:04"), 1, EventKind.FENCED, "2", "no heartbeat for 6 s (…timeout.ms)")


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(
            with_broker_2(fenced=True),
            ["the controller has fenced broker 2"],
            id="fenced, nothing else is known",
        ),
        pytest.param(
            replace(with_broker_2(fenced=True), events=(FENCED,)),
            [
                "broker 2's heartbeats stopped at 12:02:58",
                "the controller fenced it at 12:03:04: no heartbeat for 6 s (…timeout.ms)",
            ],
            id="fenced, and the controller's log",
        ),
        pytest.param(
            with_broker_2(fenced=True, probe=probe(2, Reach.REFUSED)),
            ["the controller has fenced broker 2", "127.0.0.1:9093 refuses connections"],
            id="fenced, and its port is closed",
        ),
        pytest.param(
            replace(
                with_broker_2(last_metadata_fetch_ms=NOW_MS - 20_000),
                nodes={2: Node(2, NodeState.PAUSED)},
            ),
            ["broker 2 has not fetched metadata for 20 s", "its process is paused (SIGSTOP)"],
            id="paused, and not fenced yet",
        ),
        pytest.param(
            replace(
                with_broker_2(fenced=True),
                nodes={2: Node(2, NodeState.STOPPED, last_log_line="No space left on device")},
            ),
            [
                "the controller has fenced broker 2",
                "its process does not run",
                "its last log line was: No space left on device",
            ],
            id="its process has ended",
        ),
        pytest.param(
            with_broker_2(log_dirs=(LogDir("/data", "KAFKA_STORAGE_ERROR"),)),
            ["broker 2's log directory /data is offline: KAFKA_STORAGE_ERROR"],
            id="its log directory is offline",
        ),
        pytest.param(
            replace(healthy(), brokers={1: broker(1), 3: broker(3)}),
            ["broker 2 is not registered in the cluster"],
            id="it is not registered",
        ),
        pytest.param(
            healthy(),
            ["broker 2 runs, but does not keep up with the leader (replica.lag.time.max.ms)"],
            id="it is slow",
        ),
    ],
)
def test_why_a_replica_of_broker_2_is_behind(seen: Observation, expected: list[str]) -> None:
    causes = broker_causes(seen, 2, partition(isr=(1, 3)))
    assert [cause.words for cause in causes] == expected
    assert "under-replicated" in found(without_2_in_sync(seen))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"recent_flushes": Flushes(4, 3)},
            "is slow: 3 of 4 syncs of its logs took 1 s or longer while doctor looked",
        ),
        (
            {"stalled_dirs": ("/d1", "/d2")},
            "does not answer: a read of /d1 and /d2 takes longer than 1 s",
        ),
    ],
)
def test_a_replica_is_behind_because_of_its_disk(fields: dict[str, object], why: str) -> None:
    findings = found(without_2_in_sync(with_broker_2(**fields)))
    (code,) = {"disk-slow", "disk-stalled"} & set(findings)
    behind = findings["under-replicated"]
    assert [reason.code for reason in behind.reasons] == ["replica-behind", code]
    assert behind.sentence(NOW_MS).endswith(f"; its disk {why}")
    assert behind.todos[0] == findings[code].todos[0], "the root cause comes first"


def test_a_slow_replica_is_compared_with_its_leader_and_its_log() -> None:
    behind = partition(isr=(1, 3), progress={1: Replica(2_000_000), 2: Replica(500_000)})
    slow = Event(NOW_MS - 5_000, 2, EventKind.SLOW_FETCH, "", "a fetch from broker 1 took 1603 ms")
    causes = broker_causes(healthy(events=(slow,)), 2, behind)
    assert [cause.words for cause in causes] == [
        "broker 2 runs, but has 500.0 kB of the leader's 2.0 MB",
        "it logged at 12:03:07: a fetch from broker 1 took 1603 ms",
    ]
    assert causes[0].todo == "check the load, the disk and the network of broker 2"


@pytest.mark.parametrize(
    ("isr", "min_insync", "code"),
    [
        ((1, 3), 1, "under-replicated"),
        ((1, 3), 2, "at-min-isr"),
        ((1,), 2, "under-min-isr"),
    ],
)
def test_the_state_of_a_partition(isr: tuple[int, ...], min_insync: int, code: str) -> None:
    seen = healthy(
        partitions={PAYMENTS: partition(isr=isr)},
        topics={"payments": topic(min_insync=min_insync)},
    )
    finding = found(seen)[code]
    assert finding.level is Level.PROBLEM
    assert finding.subjects == ("payments-3",)


def test_under_min_isr_says_that_writes_are_refused() -> None:
    seen = healthy(partitions={PAYMENTS: partition(isr=(1,))})
    assert words(seen)["under-min-isr"].startswith(
        "payments-3 has 1 of 2 required in-sync replicas: writes with acks=all are refused; broker "
        "2 runs"
    )


def test_a_partition_without_a_leader_names_the_brokers_that_may_lead() -> None:
    seen = healthy(
        brokers={1: broker(1), 2: broker(2), 3: broker(3, fenced=True)},
        partitions={PAYMENTS: partition(leader=-1, isr=(), elr=(3,))},
        nodes={3: Node(3, NodeState.STOPPED, restart="penstock nodes restart 3")},
    )
    finding = found(seen)["partition-offline"]
    assert [reason.words for reason in finding.reasons] == [
        "only broker 3 had all records, and may lead without losing any",
        "the controller has fenced broker 3",
        "its process does not run",
    ]
    assert finding.todos[0] == "penstock nodes restart 3"
    assert "elect-leaders --unclean --topic payments --partition 3" in finding.todos[1]


def test_replicas_of_a_reassignment_need_not_be_in_sync() -> None:
    moving = partition(replicas=(1, 2, 3, 4), adding=(4,))
    assert found(healthy(partitions={PAYMENTS: moving})) == {}


def test_ten_thousand_partitions_with_one_cause_are_one_finding() -> None:
    names = [TopicPartition("orders", index) for index in range(10_000)]
    seen = healthy(
        brokers={1: broker(1), 2: broker(2, fenced=True), 3: broker(3)},
        partitions={name: partition(name, isr=(1, 3)) for name in names},
        events=(FENCED,),
    )
    finding = found(seen)["under-replicated"]
    assert len(finding.subjects) == 10_000
    assert finding.sentence(NOW_MS).startswith(
        "orders-0, orders-1, orders-2 and 9,997 more are under-replicated since 12:03:04: broker "
        "2's heartbeats stopped at 12:02:58; the controller fenced it"
    )


def test_partitions_with_other_causes_are_other_findings() -> None:
    seen = healthy(
        partitions={
            TopicPartition("orders", 0): partition(TopicPartition("orders", 0), isr=(1, 2)),
            PAYMENTS: partition(isr=(1, 3)),
        },
        topics={},
    )
    subjects = {finding.subjects for finding in examine(seen)}
    assert subjects == {("orders-0",), ("payments-3",)}


def test_a_damaged_log_of_a_partition_that_is_in_sync() -> None:
    damaged = Event(at("11:00:00"), 2, EventKind.DAMAGED, "payments-3", "a batch has a wrong CRC")
    finding = found(healthy(events=(damaged,)))["log-damaged"]
    assert finding.subjects == ("the log of payments-3 on broker 2",)
    assert finding.reasons[0].words == "a batch has a wrong CRC"
    restarted = Node(2, NodeState.RUNNING, started_ms=at("11:30:00"))
    assert found(healthy(events=(damaged,), nodes={2: restarted})) == {}
    deleted = Event(at("11:00:00"), 2, EventKind.DAMAGED, "gone-0", "a batch has a wrong CRC")
    assert found(healthy(events=(deleted,))) == {}


def test_an_offline_directory_says_what_the_broker_logged() -> None:
    offline = Event(at("11:00:00"), 2, EventKind.DIR_OFFLINE, "/data", "No space left on device")
    seen = with_broker_2(log_dirs=(LogDir("/data", "KAFKA_STORAGE_ERROR"),))
    assert words(replace(seen, events=(offline,)))["log-dir-offline"] == (
        "log directory /data of broker 2 is offline: broker 2's log directory /data is offline: No "
        "space left on device"
    )


def test_a_fenced_broker_without_replicas_is_a_warning() -> None:
    seen = healthy(brokers={each: broker(each, fenced=each == 4) for each in (*BROKERS, 4)})
    assert found(seen)["broker-fenced"].level is Level.WARNING


def test_an_earlier_fencing_does_not_explain_a_broker_that_is_back() -> None:
    causes = broker_causes(healthy(events=(FENCED,)), 2, partition(isr=(1, 3)))
    assert [cause.code for cause in causes] == ["replica-behind"]
