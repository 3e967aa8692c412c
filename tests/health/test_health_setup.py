"""Disks, clocks and limits, and the mistakes that introductions to Kafka warn of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.health.examine import examine
from penstock.health.findings import Level
from penstock.health.observations import (
    BrokerDefaults,
    Event,
    EventKind,
    Flushes,
    LogDir,
    Node,
    Observation,
    Quorum,
)
from penstock.ids import TopicPartition
from tests.health.healthy import NOW_MS, broker, found, healthy, partition, topic, words

GB = 10**9


def with_disk(total: int, usable: int) -> Observation:
    seen = healthy()
    directory = LogDir("/data", total_bytes=total, usable_bytes=usable)
    return replace(seen, brokers={**seen.brokers, 2: broker(2, log_dirs=(directory,))})


def with_topic(**fields: Any) -> Observation:
    return healthy(topics={"payments": topic(**fields)})


def with_clock(ahead_ms: int) -> Observation:
    seen = healthy()
    assert seen.quorum is not None
    return replace(seen, quorum=replace(seen.quorum, clock_ahead_ms=ahead_ms))


def on_hosts(*racks: str | None) -> Observation:
    hosts = {
        number: broker(number, host=f"host-{number}", rack=rack)
        for number, rack in enumerate(racks, start=1)
    }
    return healthy(brokers=hosts)


JUMP = Event(
    NOW_MS - 1_000, 2, EventKind.CLOCK_JUMP, "", "the wall clock jumped forwards by 3600 s"
)
DEFAULTS = BrokerDefaults(auto_create=True, partitions=1, replication_factor=1)


@pytest.mark.parametrize(
    ("seen", "code", "level"),
    [
        pytest.param(with_disk(100 * GB, 2 * GB), "disk-full", Level.PROBLEM, id="full disk"),
        pytest.param(with_disk(300 * GB, 25 * GB), "disk-fills", Level.WARNING, id="filling disk"),
        pytest.param(with_clock(-4_000), "clock-differs", Level.WARNING, id="clock behind"),
        pytest.param(healthy(events=(JUMP,)), "clock-jumped", Level.WARNING, id="clock jumped"),
        pytest.param(
            healthy(nodes={1: Node(1, open_files=950, open_files_limit=1_024)}),
            "open-files-exhausted",
            Level.PROBLEM,
            id="open files",
        ),
        pytest.param(
            healthy(nodes={1: Node(1, open_files=50, open_files_limit=256)}),
            "open-files-limit",
            Level.WARNING,
            id="low ulimit",
        ),
        pytest.param(
            with_topic(replication_factor=1, min_insync=1),
            "replication-factor-1",
            Level.WARNING,
            id="replication factor 1",
        ),
        pytest.param(
            with_topic(min_insync=3),
            "min-insync-equals-factor",
            Level.WARNING,
            id="min.insync.replicas equals the factor",
        ),
        pytest.param(
            with_topic(min_insync=4),
            "min-insync-above-factor",
            Level.PROBLEM,
            id="min.insync.replicas above the factor",
        ),
        pytest.param(
            with_topic(min_insync=1), "min-insync-1", Level.WARNING, id="min.insync.replicas 1"
        ),
        pytest.param(
            with_topic(replication_factor=2, min_insync=1),
            "min-insync-1",
            Level.NOTE,
            id="min.insync.replicas 1 with two replicas",
        ),
        pytest.param(
            with_topic(unclean_election=True), "unclean-election", Level.WARNING, id="unclean"
        ),
        pytest.param(
            with_topic(partitions=1, rate=5_000.0),
            "one-busy-partition",
            Level.WARNING,
            id="one partition, many records",
        ),
        pytest.param(on_hosts(None, None, None), "no-racks", Level.NOTE, id="no racks"),
        pytest.param(on_hosts("a", None, "c"), "no-racks", Level.WARNING, id="a missing rack"),
        pytest.param(
            healthy(missing_topics=("nowhere",)), "topic-not-found", Level.PROBLEM, id="no topic"
        ),
    ],
)
def test_a_mistake(seen: Observation, code: str, level: Level) -> None:
    findings = found(seen)
    assert set(findings) == {code}
    assert findings[code].level is level
    assert findings[code].todos


def of_two(**fields: Any) -> Observation:
    """A cluster of two brokers, whose topic has two replicas unless the fields tell another."""
    fields = {"replication_factor": 2, "partitions": 1, **fields}
    name = TopicPartition("payments", 0)
    replicas = (1, 2)[: fields["replication_factor"]]
    return healthy(
        brokers={1: broker(1), 2: broker(2)},
        partitions={name: partition(name, replicas=replicas, isr=replicas)},
        topics={"payments": topic(**fields)},
        quorum=None,
    )


@pytest.mark.parametrize(
    ("fields", "code", "level", "todo"),
    [
        (
            {"replication_factor": 1, "min_insync": 1},
            "replication-factor-1",
            Level.WARNING,
            "raise the replication factor to 2 ",
        ),
        ({"min_insync": 2}, "min-insync-equals-factor", Level.NOTE, "add a third broker"),
        ({"min_insync": 1}, "min-insync-1", Level.NOTE, "add a third broker"),
        (
            {"replication_factor": 1, "min_insync": 1, "has_own_configs": False},
            "auto-created-topic",
            Level.NOTE,
            "default.replication.factor=2 ",
        ),
    ],
)
def test_the_advice_for_two_brokers_can_be_followed(
    fields: dict[str, Any], code: str, level: Level, todo: str
) -> None:
    finding = found(of_two(**fields))[code]
    assert finding.level is level
    assert todo in finding.todos[0]
    assert "factor to 3 with" not in finding.todos[0]


def with_cordons(*cordons: tuple[bool, ...] | None, **fields: Any) -> Observation:
    """A cluster whose brokers have such log directories, or do not say what they have."""
    directories = [
        None if each is None else tuple(LogDir("/data", cordoned=cordoned) for cordoned in each)
        for each in cordons
    ]
    return healthy(
        brokers={
            number: broker(number, log_dirs=each, **fields)
            for number, each in enumerate(directories, start=1)
        }
    )


def test_a_cluster_in_which_no_broker_accepts_replicas() -> None:
    seen = with_cordons((True,), (True, True), (True,))
    finding = found(seen)["no-broker-accepts-replicas"]
    assert set(found(seen)) == {finding.code}
    assert finding.level is Level.PROBLEM
    assert "brokers 1, 2 and 3 are cordoned" in words(seen)[finding.code]
    assert "penstock brokers undrain 1 2 3" in finding.todos[0]


@pytest.mark.parametrize(
    ("seen", "codes"),
    [
        pytest.param(with_cordons((True,), (False,), (False,)), {"broker-cordoned"}, id="one"),
        pytest.param(with_cordons((True,), None, (True,)), {"broker-cordoned"}, id="not known"),
        pytest.param(with_cordons((True, False), (False,), (False,)), set(), id="a directory"),
    ],
)
def test_cordoned_brokers_beside_others(seen: Observation, codes: set[str]) -> None:
    findings = found(seen)
    assert set(findings) == codes
    assert all(finding.level is Level.NOTE for finding in findings.values())


def test_a_topic_that_a_client_created() -> None:
    seen = with_topic(partitions=1, replication_factor=1, min_insync=1, has_own_configs=False)
    assert set(found(seen)) == {"replication-factor-1", "auto-created-topic"}


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(with_disk(20_000 * GB, 500 * GB), id="2.5 % of a large disk"),
        pytest.param(with_disk(40 * GB, 30 * GB), id="a small disk"),
        pytest.param(with_clock(800), id="clocks within a second"),
        pytest.param(on_hosts("a", "b", "c"), id="racks"),
        pytest.param(with_topic(replication_factor=3, min_insync=2), id="a sensible topic"),
        pytest.param(with_topic(partitions=1, rate=50.0), id="one partition, few records"),
        pytest.param(
            with_topic(internal=True, min_insync=1, replication_factor=3), id="an internal topic"
        ),
    ],
)
def test_what_is_no_mistake(seen: Observation) -> None:
    assert found(seen) == {}


def test_a_single_broker_gets_no_hints_about_replication() -> None:
    alone = topic("tried", partitions=1, replication_factor=1, min_insync=1, has_own_configs=False)
    name = TopicPartition("tried", 0)
    seen = healthy(
        bootstrap=(),
        brokers={1: broker(1)},
        topics={"tried": alone},
        partitions={name: partition(name, replicas=(1,), isr=(1,))},
        quorum=Quorum(1, 1, healthy().quorum.voters[:1]),  # type: ignore[union-attr]  # it is set
        defaults=DEFAULTS,
    )
    assert found(seen) == {}


def test_too_many_partitions_a_broker() -> None:
    names = [TopicPartition("orders", index) for index in range(4_001)]
    seen = healthy(partitions={name: partition(name) for name in names})
    finding = found(seen)
    assert set(finding) == {"too-many-partitions"}
    assert finding["too-many-partitions"].subjects == ("broker 1", "broker 2", "broker 3")


def test_topics_with_the_same_mistake_are_one_finding() -> None:
    names = [f"t{number}" for number in range(400)]
    seen = healthy(topics={name: topic(name, min_insync=1) for name in names})
    assert words(seen)["min-insync-1"].startswith(
        "topic t0, topic t1, topic t2 and 397 more have min.insync.replicas 1"
    )


def test_a_slow_disk() -> None:
    seen = healthy()
    for flushes, is_slow in ((Flushes(50, 10), True), (Flushes(50, 9), False), (None, False)):
        brokers = {**seen.brokers, 2: broker(2, flushes=flushes)}
        assert ("disk-slow" in words(replace(seen, brokers=brokers))) == is_slow
    brokers = {**seen.brokers, 2: broker(2, flushes=Flushes(1_000, 99))}
    assert examine(replace(seen, brokers=brokers)) == []


def test_a_disk_that_has_become_slow() -> None:
    """Since the start of the broker, few of its syncs were slow."""
    seen, before = healthy(), Flushes(100_000, 5)
    for recent, is_slow in ((Flushes(3, 2), True), (Flushes(5, 2), False), (Flushes(1, 1), False)):
        brokers = {**seen.brokers, 2: broker(2, flushes=before, recent_flushes=recent)}
        assert ("disk-slow" in words(replace(seen, brokers=brokers))) == is_slow
    brokers = {**seen.brokers, 2: broker(2, recent_flushes=Flushes(3, 2))}
    assert words(replace(seen, brokers=brokers))["disk-slow"] == (
        "the disk of broker 2 is slow: 2 of 3 syncs of its logs took 1 s or longer while doctor "
        "looked"
    )


def test_a_disk_that_does_not_answer() -> None:
    seen = healthy()
    brokers = {**seen.brokers, 2: broker(2, stalled_dirs=("/d1",), flushes=Flushes(9, 9))}
    (finding,) = examine(replace(seen, brokers=brokers))
    assert (finding.code, finding.level) == ("disk-stalled", Level.PROBLEM)
    assert finding.sentence(seen.now_ms) == (
        "the disk of broker 2 does not answer: a read of /d1 takes longer than 1 s"
    )
    assert "stop broker 2" in finding.todos[0]


def test_the_clock_of_the_active_controller_is_reported_once() -> None:
    seen = healthy()
    assert seen.quorum is not None
    brokers = {**seen.brokers, 1: broker(1, clock_ahead_ms=9_000)}
    quorum = replace(seen.quorum, clock_ahead_ms=9_000)
    assert words(replace(seen, brokers=brokers, quorum=quorum)) == {
        "clock-differs": "the clock of broker 1 is 9 s ahead of the clock of this machine"
    }
