"""Adds up the results of fresh seeds per kind of run and commit in a CSV file, so that an
interrupted series can be continued."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Protocol

# `seeds` are those that count. Runs without an election, a truncation or an acknowledged record are
# `uncounted`.
_COUNTERS = ("seeds", "uncounted", "failed", "elections", "truncations", "acknowledged")
_KEY = ("kind", "commit")
# `totals` has how often each workload and fault of the counted runs did what, as name=number.
_FIELDS = (*_KEY, *_COUNTERS, "failing_seeds", "totals")
_BETWEEN_TOTALS = "; "

# The kind of the rows that were written before there was more than one.
FIRST_KIND = "cluster"

Row = dict[str, str]


class RunReport(Protocol):
    """What a run that passed did. An explorer's `acknowledged` are committed entries or records."""

    @property
    def counts(self) -> bool:
        """False if the run did too little to prove anything."""

    @property
    def elections(self) -> int: ...

    @property
    def truncations(self) -> int: ...

    @property
    def acknowledged(self) -> int: ...


class Results:
    """The row of one kind of run on one commit."""

    def __init__(self, path: Path, commit: str, kind: str = FIRST_KIND) -> None:
        self._path = path
        self._key = (kind, commit)
        row = _read(path).get(self._key, {})
        self.numbers = {name: int(row.get(name, 0)) for name in _COUNTERS}
        self._failing = row.get("failing_seeds", "").split()
        self.totals = _parse_totals(row.get("totals") or "")

    def add_passed(self, report: RunReport) -> None:
        if report.counts:
            self.numbers["seeds"] += 1
            self.numbers["elections"] += report.elections
            self.numbers["truncations"] += report.truncations
            self.numbers["acknowledged"] += report.acknowledged
            for name, number in getattr(report, "totals", {}).items():
                self.totals[name] = self.totals.get(name, 0) + number
        else:
            self.numbers["uncounted"] += 1

    def add_failed(self, seed: int) -> None:
        self.numbers["failed"] += 1
        self._failing.append(str(seed))

    def save(self) -> None:
        """Write this row; rows of other kinds and commits stay as they are in the file."""
        rows = _read(self._path)
        rows[self._key] = {
            **dict(zip(_KEY, self._key, strict=True)),
            **{name: str(number) for name, number in self.numbers.items()},
            "failing_seeds": " ".join(self._failing),
            "totals": _BETWEEN_TOTALS.join(
                f"{name}={number}" for name, number in sorted(self.totals.items())
            ),
        }
        with self._path.open("w", newline="") as file:
            writer = csv.DictWriter(file, _FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows.values())

    def __str__(self) -> str:
        counted = {**self.numbers, **dict(sorted(self.totals.items()))}
        return ", ".join(f"{number:,} {name}" for name, number in counted.items())


def _parse_totals(text: str) -> dict[str, int]:
    pairs = (total.rsplit("=", 1) for total in text.split(_BETWEEN_TOTALS) if total)
    return {name: int(number) for name, number in pairs}


def _read(path: Path) -> dict[tuple[str, str], Row]:
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = [{"kind": FIRST_KIND, **row} for row in csv.DictReader(file)]
    return {(row["kind"], row["commit"]): row for row in rows}
