"""Adds up the results of fresh seeds per commit in a CSV file, so that an interrupted series can be
continued."""

from __future__ import annotations

import csv
from pathlib import Path

from penstock.sim.cluster.run import Report

# `seeds` are those that count. Runs without an election, a truncation or an acknowledged record are
# `uncounted`.
_COUNTERS = ("seeds", "uncounted", "failed", "elections", "truncations", "acknowledged")
_FIELDS = ("commit", *_COUNTERS, "failing_seeds")


class Results:
    """The row of one commit."""

    def __init__(self, path: Path, commit: str) -> None:
        self._path = path
        self._commit = commit
        self._rows = self._read()
        row = self._rows.get(commit, {})
        self.numbers = {name: int(row.get(name, 0)) for name in _COUNTERS}
        self._failing = row.get("failing_seeds", "").split()

    def _read(self) -> dict[str, dict[str, str]]:
        if not self._path.exists():
            return {}
        with self._path.open(newline="") as file:
            return {row["commit"]: row for row in csv.DictReader(file)}

    def add_passed(self, report: Report) -> None:
        if report.counts:
            self.numbers["seeds"] += 1
            self.numbers["elections"] += report.elections
            self.numbers["truncations"] += report.truncations
            self.numbers["acknowledged"] += report.acknowledged
        else:
            self.numbers["uncounted"] += 1

    def add_failed(self, seed: int) -> None:
        self.numbers["failed"] += 1
        self._failing.append(str(seed))

    def save(self) -> None:
        row = {
            "commit": self._commit,
            **{name: str(number) for name, number in self.numbers.items()},
        }
        self._rows[self._commit] = {**row, "failing_seeds": " ".join(self._failing)}
        with self._path.open("w", newline="") as file:
            writer = csv.DictWriter(file, _FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._rows.values())

    def __str__(self) -> str:
        return ", ".join(f"{number:,} {name}" for name, number in self.numbers.items())
