"""Findings as words and JSON, and log lines as events."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta, timezone

import pytest

from penstock.health import wording
from penstock.health.findings import Finding, Level, Reason, by_severity, merged, sentences
from penstock.health.log_lines import MAX_EVENTS, read_log
from penstock.health.observations import EventKind
from tests.health.healthy import NOW_MS, at

FINDING = Finding(
    "under-replicated",
    Level.PROBLEM,
    ("payments-3",),
    "is under-replicated",
    (Reason("fenced", "broker 2 is fenced", "start it"), Reason("stopped", "its process ended")),
    "bring broker 2 back",
    at("12:03:10"),
)


def test_the_sentence_of_one_subject_and_of_many() -> None:
    assert FINDING.sentence(NOW_MS) == (
        "payments-3 is under-replicated since 12:03:10: broker 2 is fenced; its process ended"
    )
    many = Finding("x", Level.NOTE, ("a", "b", "c", "d"), "has no leader")
    assert many.sentence(NOW_MS) == "a, b, c and 1 more have no leader"


def test_control_characters_of_names_do_not_reach_a_terminal() -> None:
    hostile = Finding("x", Level.NOTE, ("group \x1b[2J",), "is odd", (), "do \x07")
    assert hostile.sentence(NOW_MS) == "group ?[2J is odd"
    assert hostile.todos == ("do ?",)


def test_json_has_the_documented_keys() -> None:
    assert FINDING.as_json(NOW_MS) == {
        "code": "under-replicated",
        "level": "problem",
        "subjects": ["payments-3"],
        "since": "2026-11-18T12:03:10+00:00",
        "summary": FINDING.sentence(NOW_MS),
        "reasons": [
            {"code": "fenced", "words": "broker 2 is fenced", "todo": "start it"},
            {"code": "stopped", "words": "its process ended", "todo": ""},
        ],
        "todo": ["start it", "bring broker 2 back"],
    }


def test_findings_with_one_cause_are_joined_and_the_severe_ones_come_first() -> None:
    other = Finding(
        FINDING.code,
        FINDING.level,
        ("orders-0",),
        FINDING.says,
        FINDING.reasons,
        FINDING.todo,
        at("12:00:00"),
    )
    note = Finding("no-racks", Level.NOTE, ("the cluster",), "has no racks")
    joined, last = by_severity(merged([note, FINDING, other]))
    assert joined.subjects == ("payments-3", "orders-0")
    assert joined.since_ms == at("12:00:00")
    assert last is note


def test_a_chain_that_was_shown_above_is_shortened() -> None:
    first = Reason("risk", "writes are refused")
    other = replace(FINDING, code="at-min-isr", reasons=(first, *FINDING.reasons), since_ms=None)
    assert sentences([FINDING, other], NOW_MS) == [
        FINDING.sentence(NOW_MS),
        "payments-3 is under-replicated: writes are refused; broker 2 is fenced (see above)",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (wording.duration(14_200), "14 s"),
        (wording.duration(350), "350 ms"),
        (wording.duration(600_000), "10 min"),
        (wording.duration(7_300_000), "2 h"),
        (wording.duration(5 * 86_400_000), "5 days"),
        (wording.size(17), "17 bytes"),
        (wording.size(1_250_000_000), "1.2 GB"),
        (wording.listed(["a"]), "a"),
        (wording.listed(["a", "b"]), "a and b"),
        (wording.listed(list("abcdef")), "a, b, c and 3 more"),
        (wording.counted(1, "record"), "1 record"),
        (wording.brokers([2, 3]), "brokers 2 and 3"),
        (wording.plural("falls behind"), "fall behind"),
        (wording.clock_time(at("12:03:10"), NOW_MS, UTC), "12:03:10"),
        (wording.clock_time(at("12:03:10"), NOW_MS, timezone(timedelta(hours=2))), "14:03:10"),
        (
            wording.clock_time(at("12:03:10") - 86_400_000, NOW_MS, UTC),
            "2026-11-17 12:03:10",
        ),
    ],
)
def test_wording(text: str, expected: str) -> None:
    assert text == expected


LOG = """\
2026-11-18 12:03:04,250 WARNING penstock.node.controller.broker_sessions: fencing broker 2: no heartbeat for 6 s (broker.session.timeout.ms)
Traceback (most recent call last):
2026-99-18 12:03:04,250 INFO penstock: the date is damaged
2026-11-18 12:03:10,000 INFO [node 1] penstock.node.partition.isr_changes: payments-3: in-sync replicas are [1, 3]; [2] did not fetch up to the log end offset within replica.lag.time.max.ms
{"time": "2026-11-18T12:03:10.500Z", "level": "INFO", "node": 1, "logger": "penstock.node", "message": "fencing broker 3: gone"}
{"time": "2026-11-18T12:03:10.600Z", "level": "INFO"
2026-11-18 12:03:11,000 ERROR penstock.log.directory: log directory /d/one is offline: append as leader: No space left on device. Its partitions are offline until the disk is repaired and the broker restarted
2026-11-18 12:03:11,100 ERROR penstock.log.store: partition orders-7 is offline: bad
2026-11-18 12:03:11,200 WARNING penstock.server.clock_jumps: the wall clock jumped forwards by 3600 s. Timestamps of records jump with it
2026-11-18 12:03:11,300 WARNING penstock.server.loop_delay: the event loop was blocked for 7995 ms, and all clients waited
2026-11-18 12:03:11,400 WARNING penstock.server.loop_delay: the event loop was blocked for 151 ms, and all clients waited
2026-11-18 12:03:11,500 INFO [node 1] penstock.audit: CreateTopics of User:ANONYMOUS
"""  # noqa: E501 - lines as a node writes them


def test_a_log_becomes_events() -> None:
    log = read_log(1, LOG, UTC)
    assert [(event.kind, event.subject, event.numbers) for event in log.events] == [
        (EventKind.FENCED, "2", ()),
        (EventKind.ISR, "payments-3", (2,)),
        (EventKind.FENCED, "3", ()),
        (EventKind.DIR_OFFLINE, "/d/one", ()),
        (EventKind.PARTITION_OFFLINE, "orders-7", ()),
        (EventKind.CLOCK_JUMP, "", (3600,)),
        (EventKind.BLOCKED, "", ()),
    ]
    assert log.events[0].at_ms == at("12:03:04") + 250
    assert log.events[0].words == "no heartbeat for 6 s (broker.session.timeout.ms)"
    assert log.last_line == "the event loop was blocked for 151 ms, and all clients waited"
    assert log.last_ms == at("12:03:11") + 400


def test_only_the_latest_events_of_a_log_are_kept() -> None:
    line = "2026-11-18 12:03:04,250 WARNING penstock: fencing broker 2: no heartbeat\n"
    assert len(read_log(1, line * (MAX_EVENTS + 5), UTC).events) == MAX_EVENTS


def test_the_last_line_may_be_the_end_of_a_traceback() -> None:
    line = "2026-11-18 12:03:04,250 INFO [node 1] penstock: starting\n"
    log = read_log(1, f"{line}Traceback (most recent call last):\n  …\nOSError: no space\n", UTC)
    assert (log.last_line, log.last_ms, log.events) == (
        "OSError: no space",
        at("12:03:04") + 250,
        (),
    )


def test_an_empty_log() -> None:
    log = read_log(1, "", UTC)
    assert (log.last_line, log.last_ms, log.events) == ("", None, ())
