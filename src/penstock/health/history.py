"""What nodes logged: which lines count for what is seen now, and how a chain of reasons quotes
them."""

from __future__ import annotations

import re

from penstock.health.observations import Event, EventKind, Observation, Partition
from penstock.health.wording import clock_time

# Older events of a running node do not explain what is seen now.
RECENT_MS = 600_000
_LINE_LENGTH = 160
# Of lines whose end says what happened next, or what to do.
LONG_LINE = 400
_NAMES = re.compile(r", | and ")


def last_event(seen: Observation, kind: EventKind, subject: str) -> Event | None:
    for event in reversed(seen.events):
        if event.kind is kind and event.subject == subject:
            return event
    return None


def recent_events(seen: Observation, kind: EventKind, node: int) -> list[Event]:
    """Return what a node logged in the last minutes, and since its start."""
    return [
        event
        for event in seen.events
        if event.kind is kind
        and event.node == node
        and seen.now_ms - event.at_ms < RECENT_MS
        and is_current(seen, event)
    ]


def is_current(seen: Observation, event: Event) -> bool:
    """Return False for what a node logged before its last start, where that is known."""
    node = seen.nodes.get(event.node)
    if node is None or node.started_ms is None:
        return True
    at_ms = event.at_ms
    if event.kind is EventKind.CLOCK_JUMP and event.numbers and "backwards" in event.words:
        # The line has the time after the jump.
        at_ms += event.numbers[0] * 1000
    return at_ms >= node.started_ms


def last_departure(seen: Observation, broker_id: int, partition: Partition) -> Event | None:
    """Return the leader's last line that the broker left the in-sync replicas of the partition."""
    for event in reversed(seen.events):
        if (
            event.kind is EventKind.LEFT_ISR
            and broker_id in event.numbers
            and partition.leader in (event.node, -1)
        ):
            names = _NAMES.split(event.subject)
            # A long list ends with "312 more".
            if str(partition.name) in names or names[-1].endswith(" more"):
                return event
    return None


def logged(seen: Observation, event: Event, node: str = "{it}") -> str:
    """Return "it logged at 12:03:10: …"."""
    at = clock_time(event.at_ms, seen.now_ms, seen.zone)
    return f"{node} logged at {at}: {short(event.words)}"


def short(text: str, length: int = _LINE_LENGTH) -> str:
    """Limit the words of a log line."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
