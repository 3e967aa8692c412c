"""What nodes repaired by themselves at their start. It is not wrong any more, but has a cause."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.health.findings import Finding, Level, Reason
from penstock.health.history import LONG_LINE, recent_events, short
from penstock.health.observations import Event, EventKind, Observation
from penstock.health.wording import counted


def check_repairs(seen: Observation) -> Iterator[Finding]:
    for node in sorted({event.node for event in seen.events}):
        yield from _truncated(seen, node)
        yield from _damaged(seen, node)


def _latest(seen: Observation, kind: EventKind, node: int) -> list[Event]:
    """Return the last line of each file: a node may read a file several times."""
    return list({event.subject: event for event in recent_events(seen, kind, node)}.values())


def _truncated(seen: Observation, node: int) -> Iterator[Finding]:
    truncated = _latest(seen, EventKind.TRUNCATED, node)
    if truncated:
        shutdowns = recent_events(seen, EventKind.UNCLEAN_SHUTDOWN, node)
        yield Finding(
            "log-truncated",
            Level.NOTE,
            (f"node {node}",),
            f"truncated {counted(len(truncated), 'damaged file')} at its start, and fetches the "
            "rest again",
            (
                Reason("truncated", short(truncated[-1].words)),
                *(Reason("unclean-shutdown", short(each.words)) for each in shutdowns[-1:]),
            ),
            f"if nobody killed node {node}, look for the end of its process, or for a loss of "
            "power, in the log of its machine",
            truncated[0].at_ms,
        )


def _damaged(seen: Observation, node: int) -> Iterator[Finding]:
    damaged = _latest(seen, EventKind.FILE_DAMAGED, node)
    if damaged:
        yield Finding(
            "file-damaged",
            Level.WARNING,
            (f"node {node}",),
            f"found {counted(len(damaged), 'damaged file')} at its start, and does without",
            tuple(Reason("file-damaged", short(each.words, LONG_LINE)) for each in damaged[-3:]),
            f"check the disk of node {node}: it returned other bytes than were written",
            damaged[0].at_ms,
        )
