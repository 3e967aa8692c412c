"""Shows what doctor found: a table with colours on a terminal, plain lines in a pipe, or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.health.findings import Finding, Level, sentences
from penstock.health.observations import Observation
from penstock.health.wording import counted, printable

if TYPE_CHECKING:
    from rich.console import Group

# The version of the JSON shape; fields are added without a new one.
JSON_VERSION = 1
# Rows of a table. --json has all.
MAX_ROWS = 50
HEALTHY, PROBLEMS, COULD_NOT_LOOK = 0, 1, 2
_COLOURS = {Level.PROBLEM: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan"}


def exit_code(seen: Observation, findings: Sequence[Finding]) -> int:
    if any(finding.level is Level.PROBLEM for finding in findings):
        return PROBLEMS
    return COULD_NOT_LOOK if seen.unseen else HEALTHY


def as_json(seen: Observation, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the shape that docs/DOCTOR.md documents."""
    return {
        "version": JSON_VERSION,
        "exit_code": exit_code(seen, findings),
        "at": datetime.fromtimestamp(seen.now_ms / 1000, UTC).isoformat(),
        "cluster": seen.cluster_id,
        "seen": {
            "brokers": len(seen.brokers),
            "topics": len(seen.topics),
            "partitions": len(seen.partitions),
            "groups": len(seen.groups),
            "groups_total": seen.group_count,
            "transactions": len(seen.transactions),
            "queries": len(seen.queries),
            "nodes": len(seen.nodes),
        },
        "findings": [finding.as_json(seen.now_ms, seen.zone) for finding in findings],
        "unseen": [{"subject": each.subject, "reason": each.reason} for each in seen.unseen],
    }


def plain_lines(seen: Observation, findings: Sequence[Finding]) -> Iterator[str]:
    """Return a line per finding, and one for each thing to do."""
    shown = findings[:MAX_ROWS]
    for finding, words in zip(shown, sentences(shown, seen.now_ms, seen.zone), strict=True):
        yield f"{finding.level.name:<8} {finding.code}: {words}"
        for todo in finding.todos:
            yield f"         do: {todo}"
    yield from _rest(seen, findings)


def rich_report(seen: Observation, findings: Sequence[Finding]) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Table | Text] = []
    if findings:
        table = Table("", "WHAT AND WHY", "WHAT TO DO", box=None, pad_edge=False)
        shown = findings[:MAX_ROWS]
        for finding, words in zip(shown, sentences(shown, seen.now_ms, seen.zone), strict=True):
            subject_end = words.find(": ")
            text = Text(words)
            text.stylize("bold", 0, subject_end if subject_end > 0 else len(words))
            text.append(f"\n{finding.code}", style="dim")
            level = Text(finding.level.name.lower(), style=_COLOURS[finding.level])
            table.add_row(level, text, Text("\n".join(finding.todos)))
        parts.append(table)
    parts += [Text(line) for line in _rest(seen, findings)]
    return Group(*parts)


def _rest(seen: Observation, findings: Sequence[Finding]) -> Iterator[str]:
    if len(findings) > MAX_ROWS:
        yield f"and {len(findings) - MAX_ROWS:,} more: see --json"
    for each in seen.unseen:
        yield printable(f"not seen: {each.subject}: {each.reason}")
    groups = counted(len(seen.groups), "group")
    if seen.group_count > len(seen.groups):
        groups = f"{len(seen.groups):,} of {seen.group_count:,} groups (--group names one)"
    looked = ", ".join(
        (
            counted(len(seen.brokers), "broker"),
            counted(len(seen.partitions), "partition"),
            groups,
        )
    )
    counts = {level: sum(each.level is level for each in findings) for level in Level}
    result = ", ".join(
        counted(count, level.name.lower()) for level, count in counts.items() if count
    )
    yield f"{result or 'Nothing wrong was found'}: looked at {looked}."
