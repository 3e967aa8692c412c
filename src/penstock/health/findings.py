"""A finding: what is wrong with which parts of a cluster, the chain of reasons, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from enum import IntEnum
from typing import Any

from penstock.health.wording import clock_time, listed, plural, printable

# The beginnings of the codes that come before others of their level.
_FIRST = ("bootstrap-", "quorum-no-leader", "partition-offline", "under-min-isr", "broker-")


class Level(IntEnum):
    """In the order of severity: something fails now; something will fail, or is a mistake;
    something is worth knowing."""

    PROBLEM = 0
    WARNING = 1
    NOTE = 2


@dataclass(frozen=True, slots=True)
class Reason:
    """One link of a chain of causes: a stable code, the words, and what to do if that is known."""

    code: str
    words: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """`subjects` are the partitions, brokers, groups or topics that share all the rest, at least
    one. `says` continues the sentence that begins with one subject: "is under-replicated". The
    chain of `reasons` leads from the symptom to the root cause."""

    code: str
    level: Level
    subjects: tuple[str, ...]
    says: str
    reasons: tuple[Reason, ...] = ()
    todo: str = ""
    since_ms: int | None = None

    def sentence(self, now_ms: int, zone: tzinfo = UTC) -> str:
        """Return "payments-3 is under-replicated since 12:03:10: broker 2 …; its …"."""
        says = self.says if len(self.subjects) == 1 else plural(self.says)
        since = "" if self.since_ms is None else f" since {clock_time(self.since_ms, now_ms, zone)}"
        chain = "; ".join(reason.words for reason in self.reasons)
        return printable(f"{listed(self.subjects)} {says}{since}" + (f": {chain}" if chain else ""))

    @property
    def todos(self) -> tuple[str, ...]:
        """What to do, from the root cause on, each once."""
        todos = [reason.todo for reason in reversed(self.reasons)] + [self.todo]
        return tuple(dict.fromkeys(printable(todo) for todo in todos if todo))

    def as_json(self, now_ms: int, zone: tzinfo = UTC) -> dict[str, Any]:
        """Return the finding in the shape that docs/DOCTOR.md documents."""
        return {
            "code": self.code,
            "level": self.level.name.lower(),
            "subjects": list(self.subjects),
            "since": None
            if self.since_ms is None
            else datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(),
            "summary": self.sentence(now_ms, zone),
            "reasons": [
                {"code": reason.code, "words": reason.words, "todo": reason.todo}
                for reason in self.reasons
            ],
            "todo": list(self.todos),
        }


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Join findings that differ in their subjects and times only: one finding per cause."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.code, finding.level, finding.says, finding.reasons, finding.todo)
        groups.setdefault(key, []).append(finding)
    return [_join(group) for group in groups.values()]


def _join(group: Sequence[Finding]) -> Finding:
    first = group[0]
    if len(group) == 1:
        return first
    subjects = dict.fromkeys(subject for finding in group for subject in finding.subjects)
    times = [finding.since_ms for finding in group if finding.since_ms is not None]
    return Finding(
        first.code,
        first.level,
        tuple(subjects),
        first.says,
        first.reasons,
        first.todo,
        min(times, default=None),
    )


def sentences(findings: Iterable[Finding], now_ms: int, zone: tzinfo = UTC) -> list[str]:
    """Return the sentences of findings below each other. Of a chain that an earlier one has
    already, the first reason is left."""
    shown: set[Reason] = set()
    texts = []
    for finding in findings:
        chain: list[Reason] = []
        repeating = False
        for reason in finding.reasons:
            repeats = reason in shown
            if not repeats:
                chain.append(reason)
            elif not repeating:
                chain.append(replace(reason, words=f"{reason.words} (see above)"))
            repeating = repeats
        shown.update(finding.reasons)
        texts.append(replace(finding, reasons=tuple(chain)).sentence(now_ms, zone))
    return texts


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Sort by level, then what explains the most first, then by the number of subjects."""

    def key(finding: Finding) -> tuple[int, int, int, str]:
        rank = next(
            (rank for rank, code in enumerate(_FIRST) if finding.code.startswith(code)), len(_FIRST)
        )
        return finding.level, rank, -len(finding.subjects), finding.code

    return sorted(findings, key=key)
