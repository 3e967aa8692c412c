"""The layout of penstock top: which rows fit, and the cells of each.

The same tables are drawn on a terminal and printed as plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.output import rich_table
from penstock.cli.plan_tables import human_bytes
from penstock.cli.session import table
from penstock.cli.top.rows import BrokerRow, GroupRow, Rows, TopicRow
from penstock.cli.top.snapshot import FENCED, LIVE, SILENT, Snapshot
from penstock.health.wording import counted, printable

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_UNKNOWN = "-"
# Lines around the tables: two of a heading, one of errors, one of keys; and two of each table.
_FRAME_LINES, _TABLE_LINES = 4, 2
_FEW_BROKERS = 3
# Errors that are named in one line; the others are counted.
_NAMED_ERRORS = 2

KEYS = "q quit   Tab/0-3 all, brokers, topics, groups   ↑↓ PgUp PgDn scroll   s sort"


class View(IntEnum):
    ALL = 0
    BROKERS = 1
    TOPICS = 2
    GROUPS = 3


class Limits(NamedTuple):
    """The rows of each table that fit."""

    brokers: int
    topics: int
    groups: int


def limits_for(view: View, height: int, brokers: int, topics: int, groups: int) -> Limits:
    """Divide the lines of a terminal among tables with these numbers of rows.

    In the view of all, brokers get up to a third, but not less than three lines. Topics and groups
    share the rest; one takes what the other does not need.
    """
    alone = max(height - _FRAME_LINES - _TABLE_LINES, 1)
    match view:
        case View.BROKERS:
            return Limits(alone, 0, 0)
        case View.TOPICS:
            return Limits(0, alone, 0)
        case View.GROUPS:
            return Limits(0, 0, alone)
    room = max(height - _FRAME_LINES - 3 * _TABLE_LINES, 3)
    for_brokers = min(brokers, max(room // 3, _FEW_BROKERS), room)
    room -= for_brokers
    half = room // 2
    for_groups = min(groups, max(half, room - topics))
    return Limits(for_brokers, min(topics, room - for_groups), for_groups)


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    heading: Sequence[str]
    rows: Sequence[Sequence[str]]


def sections(
    rows: Rows, limits: Limits, view: View, group_count: int, first: int = 0
) -> list[Section]:
    """Return the tables of a view. `first` is the first topic or broker that is shown; groups were
    asked from there on."""
    brokers = rows.brokers[first if view is View.BROKERS else 0 :][: limits.brokers]
    topics = rows.topics[first if view is View.TOPICS else 0 :][: limits.topics]
    groups = rows.groups[: limits.groups]
    found = []
    if view in (View.ALL, View.BROKERS):
        title = _title("BROKERS", len(brokers), len(rows.brokers))
        found.append(Section(title, _BROKER_HEADING, [_broker_cells(row) for row in brokers]))
    if view in (View.ALL, View.TOPICS):
        title = _title("TOPICS", len(topics), len(rows.topics))
        found.append(Section(title, _TOPIC_HEADING, [_topic_cells(row) for row in topics]))
    if view in (View.ALL, View.GROUPS):
        title = _title("GROUPS", len(groups), group_count)
        found.append(Section(title, _GROUP_HEADING, [_group_cells(row) for row in groups]))
    return found


def _title(noun: str, shown: int, count: int) -> str:
    return f"{noun} {count:,}" if shown == count else f"{noun} {shown:,} of {count:,}"


_BROKER_HEADING = [
    *("ID", "ADDRESS", "RACK", "STATE", "QUORUM", "META LAG", "LEADERS", "REPLICAS"),
    *("SIZE", "DIRS", "OFFLINE", "MSG/S", "MB/S"),
]
_TOPIC_HEADING = [
    *("NAME", "PARTITIONS", "RF", "UNDER-REPL", "OFFLINE", "SIZE", "MSG/S", "MB/S"),
]
_GROUP_HEADING = ["GROUP", "TYPE", "STATE", "MEMBERS", "LAG", "LAG/S"]


def _broker_cells(row: BrokerRow) -> list[str]:
    return [
        str(row.id),
        row.address,
        row.rack or _UNKNOWN,
        row.state,
        row.quorum or _UNKNOWN,
        _count(row.metadata_lag),
        _count(row.leaders),
        _count(row.replicas),
        _bytes(row.bytes),
        _count(row.log_dirs),
        _count(row.offline_log_dirs),
        _rate(row.messages_per_s),
        _megabytes(row.bytes_per_s),
    ]


def _topic_cells(row: TopicRow) -> list[str]:
    return [
        row.name,
        _count(row.partitions),
        str(row.replication_factor),
        _count(row.under_replicated),
        _count(row.offline),
        _bytes(row.bytes),
        _rate(row.messages_per_s),
        _megabytes(row.bytes_per_s),
    ]


def _group_cells(row: GroupRow) -> list[str]:
    change = row.lag_change_per_s
    return [
        row.id,
        row.type or _UNKNOWN,
        row.state or _UNKNOWN,
        _count(row.members),
        _count(row.lag),
        _UNKNOWN if change is None else "0" if not change else f"{change:+,.1f}",
    ]


def _count(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _bytes(value: int | None) -> str:
    return _UNKNOWN if value is None else human_bytes(value)


def _rate(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _megabytes(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value / 1e6:,.2f}"


def heading_lines(now: Snapshot, clock: str) -> list[str]:
    """Return a line of the cluster and one of its partitions and controllers."""
    states = [broker.state for broker in now.brokers]
    bad = [f"{states.count(state)} {state}" for state in dict.fromkeys(states) if state != LIVE]
    partitions = [partition for topic in now.topics for partition in topic.partitions]
    under = sum(len(each.isr) < len(each.replicas) for each in partitions)
    offline = sum(each.leader < 0 for each in partitions)
    quorum = now.quorum
    controller = "controller unknown"
    if quorum is not None:
        controller = (
            f"controller {quorum.leader_id} epoch {quorum.epoch}, slowest voter "
            f"{quorum.voter_lag:,} records behind"
        )
    return [
        f"{clock}  cluster {now.cluster_id}  {counted(len(now.brokers), 'broker')}"
        + (f" ({', '.join(bad)})" if bad else ""),
        f"{counted(len(now.topics), 'topic')}, {counted(len(partitions), 'partition')}: "
        f"{under:,} under-replicated, {offline:,} offline  {controller}",
    ]


def is_healthy(now: Snapshot) -> bool:
    """Return False if a broker is fenced or silent, or a partition has no leader."""
    return all(broker.state not in (FENCED, SILENT) for broker in now.brokers) and all(
        partition.leader >= 0 for topic in now.topics for partition in topic.partitions
    )


def error_line(errors: Sequence[str]) -> str:
    if not errors:
        return ""
    more = len(errors) - _NAMED_ERRORS
    named = "; ".join(errors[:_NAMED_ERRORS]) + (f"; and {more:,} more" if more > 0 else "")
    return " ".join(printable(named).split())


def plain_lines(heading: Sequence[str], tables: Sequence[Section], error: str) -> list[str]:
    lines = [*heading, *([f"error: {error}"] if error else [])]
    for section in tables:
        cells = [[printable(cell) for cell in row] for row in section.rows]
        lines += ["", section.title, *table(section.heading, cells)]
    return lines


def screen(
    heading: Sequence[str], tables: Sequence[Section], error: str, *, healthy: bool, keys: str
) -> Group:
    """Return what a terminal shows."""
    from rich.console import Group
    from rich.text import Text

    first, *others = heading
    parts: list[Text | Table] = [
        Text(printable(first), style="bold green" if healthy else "bold red", no_wrap=True),
        *(Text(printable(line), no_wrap=True) for line in others),
        Text(f"error: {error}" if error else "", style="red", no_wrap=True),
    ]
    for section in tables:
        parts.append(Text(section.title, style="bold cyan", no_wrap=True))
        parts.append(rich_table(section.heading, section.rows))
    if keys:
        parts.append(Text(keys, style="dim", no_wrap=True))
    return Group(*parts)
