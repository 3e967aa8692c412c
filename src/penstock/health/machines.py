"""The machines of brokers: disks, clocks that differ, and limits of open files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.health.disks import check_disks
from penstock.health.findings import Finding, Level, Reason
from penstock.health.history import is_current, recent_events
from penstock.health.observations import EventKind, NodeState, Observation
from penstock.health.wording import clock_time, duration

# Timestamps of records, retention by time and transaction timeouts tolerate less than this.
CLOCK_DIFFERENCE_MS = 2_000
_OPEN_FILES_SHARE = 0.8
# A block of this length is close to a session timeout.
_LONG_BLOCK_MS = 5_000
# Kafka recommends 100,000. Below this, a few hundred clients and segments exhaust the limit.
_FEW_OPEN_FILES = 1_024


def check_machines(seen: Observation) -> Iterator[Finding]:
    for broker in seen.brokers.values():
        yield from check_disks(broker)
        yield from _clock(f"broker {broker.id}", broker.clock_ahead_ms)
    leader = None if seen.quorum is None else seen.brokers.get(seen.quorum.leader)
    if seen.quorum is not None and (leader is None or leader.clock_ahead_ms is None):
        yield from _clock(f"controller {seen.quorum.leader}", seen.quorum.clock_ahead_ms)
    yield from _clock_jumps(seen)
    for node in seen.nodes.values():
        if node.state is not NodeState.STOPPED:
            yield from _frozen(seen, node.id)
    yield from _open_files(seen)


def _clock(node: str, ahead_ms: int | None) -> Iterator[Finding]:
    if ahead_ms is not None and abs(ahead_ms) >= CLOCK_DIFFERENCE_MS:
        side = "ahead of" if ahead_ms > 0 else "behind"
        yield Finding(
            "clock-differs",
            Level.WARNING,
            (f"the clock of {node}",),
            f"is {duration(abs(ahead_ms))} {side} the clock of this machine",
            (),
            "run a time service such as chrony on both machines. Timestamps of records, and "
            "retention by time, follow these clocks",
        )


def _clock_jumps(seen: Observation) -> Iterator[Finding]:
    jumps = [
        event
        for event in seen.events
        if event.kind is EventKind.CLOCK_JUMP and is_current(seen, event)
    ]
    for event in {event.node: event for event in jumps}.values():
        at = clock_time(event.at_ms, seen.now_ms, seen.zone)
        yield Finding(
            "clock-jumped",
            Level.WARNING,
            (f"the machine of node {event.node}",),
            f"has a clock that is not steady: at {at} {event.words}",
            (),
            "check its time service: it should slew the clock, not step it",
        )


def _frozen(seen: Observation, node: int) -> Iterator[Finding]:
    blocked = [
        event
        for event in recent_events(seen, EventKind.BLOCKED, node)
        if int(re.findall(r"\d+", event.words)[0]) >= _LONG_BLOCK_MS
    ]
    if blocked:
        yield Finding(
            "node-was-frozen",
            Level.WARNING,
            (f"node {node}",),
            "did not run for a while",
            (Reason("blocked", blocked[-1].words),),
            "look for a paused process or virtual machine, swapping, or an overloaded machine",
            blocked[-1].at_ms,
        )


def _open_files(seen: Observation) -> Iterator[Finding]:
    for node in seen.nodes.values():
        limit, used = node.open_files_limit, node.open_files
        if limit is None:
            continue
        if used is not None and used >= _OPEN_FILES_SHARE * limit:
            yield Finding(
                "open-files-exhausted",
                Level.PROBLEM,
                (f"node {node.id}",),
                f"has {used:,} files and connections open, of {limit:,} that it may have",
                (),
                "raise the limit of open files (ulimit -n, LimitNOFILE of systemd) and restart it",
            )
        elif limit < _FEW_OPEN_FILES:
            yield Finding(
                "open-files-limit",
                Level.WARNING,
                (f"node {node.id}",),
                f"may open only {limit:,} files and connections",
                (),
                "raise the limit of open files (ulimit -n, LimitNOFILE of systemd): 100,000 suits "
                "most brokers",
            )
    for event in seen.events:
        if event.kind is EventKind.OPEN_FILES and event.node not in seen.nodes:
            yield Finding(
                "open-files-exhausted",
                Level.PROBLEM,
                (f"node {event.node}",),
                "has reached its limit of open files",
                (Reason("open-files", event.words[:160]),),
            )
            return
