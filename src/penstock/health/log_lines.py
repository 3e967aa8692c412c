"""Reads the log of a node: its last line, and the lines that explain something.

Only the text is read here; the caller bounds its length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo

from penstock.health.observations import Event, EventKind

# Events of one log that are kept: the latest.
MAX_EVENTS = 1_000
# Refused clients of one log that are kept, the latest. Those that repeat count once, so that they
# do not take the places of other events.
MAX_REFUSED_CLIENTS = 100
_OF_REFUSED = (EventKind.HANDSHAKE_FAILED, EventKind.LOGIN_FAILED, EventKind.DENIED)

# "2026-11-18 12:03:10,123 WARNING [node 1] penstock.node: message", as cli.log_output writes it.
_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) [A-Z]+ (?:\[node \d+\] )?(?P<logger>\S+): "
    r"(?P<text>.*)"
)
# What clients do does not explain what a node does.
_OF_CLIENTS = ("penstock.request", "penstock.audit")
# Of those lines, these explain why a client does not work.
_REFUSALS = (": denied, since ", ": authentication failed: ")
_PATTERNS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (EventKind.FENCED, r"fencing broker (?P<subject>\d+): (?P<words>.*)"),
        (
            EventKind.ISR,
            r"(?P<subject>\S+-\d+): (?P<words>in-sync replicas are \[[\d, ]*\]"
            r"(?:; \[(?P<numbers>[\d, ]+)\] did not fetch.*)?)",
        ),
        (
            EventKind.LEFT_ISR,
            r"broker (?P<numbers>\d+) left the in-sync replicas of (?P<subject>.+?): (?P<words>.*)",
        ),
        (EventKind.DIR_OFFLINE, r"log directory (?P<subject>.+?) is offline: (?P<words>.*)"),
        (EventKind.DAMAGED, r"(?P<subject>[^\s/]+-\d+) is damaged: (?P<words>.*)"),
        (EventKind.PARTITION_OFFLINE, r"partition (?P<subject>\S+) is offline: (?P<words>.*)"),
        (
            EventKind.CLOCK_JUMP,
            r"(?P<words>the wall clock jumped \w+ by (?P<numbers>\d+) s)",
        ),
        (EventKind.BLOCKED, r"(?P<words>the event loop was blocked for \d{4,} ms)"),
        (EventKind.OPEN_FILES, r"(?P<words>.*Raise the limit of open files.*)"),
        (EventKind.SLOW_FETCH, r"(?P<words>a fetch from broker (?P<numbers>\d+) took \d+ ms.*)"),
        (EventKind.HEARTBEAT_FAILED, r"(?P<words>broker heartbeat failed: .*)"),
        (
            EventKind.FETCH_FAILED,
            r"(?P<words>cannot fetch from broker (?P<numbers>\d+), retrying: .*)",
        ),
        (EventKind.TRUNCATED, r"recovery: (?P<words>(?P<subject>\S+): truncated from .*)"),
        (
            EventKind.FILE_DAMAGED,
            r"(?P<words>ignoring damaged checkpoint (?P<subject>\S+): .*)",
        ),
        (
            EventKind.FILE_DAMAGED,
            r"(?P<words>(?P<subject>\S+) is damaged: .*(?:It is set aside|replaces it).*)",
        ),
        (
            EventKind.HANDSHAKE_FAILED,
            r"TLS handshake with (?P<subject>\S+) on (?P<words>.*)",
        ),
        (
            EventKind.LOGIN_FAILED,
            r"connection from (?P<subject>\S+):\d+ on (?P<words>\S+: authentication failed: .*)",
        ),
        (
            EventKind.DENIED,
            r".*: denied, since (?P<subject>'.*?') from (?P<words>\S+ may not .*)",
        ),
        (
            EventKind.UNCLEAN_SHUTDOWN,
            r"(?P<words>log directory (?P<subject>.+?) was not shut down cleanly: .*)",
        ),
    )
)


@dataclass(frozen=True, slots=True)
class NodeLog:
    """`last_line` has no time and no logger."""

    events: tuple[Event, ...]
    last_line: str
    last_ms: int | None


def read_log(node: int, text: str, zone: tzinfo) -> NodeLog:
    """Return what a node logged, in the order of time. Other lines, such as those of a traceback,
    count only as the last line: a process that fails ends with them."""
    events: list[Event] = []
    refused: dict[tuple[EventKind, str, str], Event] = {}
    last_line, last_ms = "", None
    for at_ms, message, is_of_client in _lines(text, zone):
        if not is_of_client:
            last_line, last_ms = message, at_ms or last_ms
        event = None if at_ms is None else _event(node, at_ms, message)
        if event is not None and event.kind in _OF_REFUSED:
            key = event.kind, event.subject, event.words
            refused.pop(key, None)
            refused[key] = event
        elif event is not None and not is_of_client:
            events.append(event)
    kept = [*events[-MAX_EVENTS:], *list(refused.values())[-MAX_REFUSED_CLIENTS:]]
    return NodeLog(tuple(sorted(kept, key=lambda event: event.at_ms)), last_line, last_ms)


def _lines(text: str, zone: tzinfo) -> Iterator[tuple[int | None, str, bool]]:
    """Return the time and the message of each line, and whether it is about a client; of other
    lines their text, without a time."""
    for line in text.splitlines():
        parsed = _json_line(line) if line.startswith("{") else _text_line(line, zone)
        if parsed is not None:
            at, logger, message = parsed
            is_of_client = logger in _OF_CLIENTS
            if not is_of_client or any(text in message for text in _REFUSALS):
                yield round(at.timestamp() * 1000), message, is_of_client
        elif line.strip():
            yield None, line.strip(), False


def _text_line(line: str, zone: tzinfo) -> tuple[datetime, str, str] | None:
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    try:
        at = datetime.strptime(found["time"], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=zone)
    except ValueError:
        # The digits are no date: the line is damaged.
        return None
    return at, found["logger"], found["text"]


def _json_line(line: str) -> tuple[datetime, str, str] | None:
    """Parse a line of penstock.log.format=json."""
    try:
        event = json.loads(line)
        at = datetime.fromisoformat(event["time"])
        return at, str(event["logger"]), str(event["message"])
    except (ValueError, KeyError, TypeError):
        # The first line of the text may be the end of one.
        return None


def _event(node: int, at_ms: int, message: str) -> Event | None:
    for kind, pattern in _PATTERNS:
        found = pattern.match(message)
        if found is not None:
            groups = found.groupdict()
            numbers = re.findall(r"\d+", groups.get("numbers") or "")
            return Event(
                at_ms,
                node,
                kind,
                groups.get("subject") or "",
                groups["words"],
                tuple(map(int, numbers)),
            )
    return None
