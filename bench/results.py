"""Write bench/RESULTS.md, with one section per benchmark, replaced by each run."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
_TITLE = (
    "# Results\n\nThe last run of each benchmark. Compare numbers of one run only: the machine is "
    "shared and noisy.\n"
)


class Section:
    """A section's tables; rows are printed as they are added, and written by `save`."""

    def __init__(self, name: str, command: str, intro: str) -> None:
        self.name = name
        self._command = command
        self._lines = [intro, ""]

    def table(self, *columns: str) -> None:
        self._lines += ["", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]

    def row(self, *cells: str) -> None:
        line = "| " + " | ".join(cells) + " |"
        print(line, flush=True)
        self._lines.append(line)

    def text(self, line: str) -> None:
        print(line, flush=True)
        self._lines += ["", line]

    def save(self) -> None:
        sections = _sections(RESULTS.read_text() if RESULTS.exists() else "")
        sections[self.name] = "\n".join(
            [f"## {self.name}", "", f"`{self._command}`, {_machine()}", "", *self._lines, ""]
        )
        RESULTS.write_text(_TITLE + "\n" + "\n".join(sections[name] for name in sorted(sections)))


def _sections(text: str) -> dict[str, str]:
    parts = text.split("\n## ")[1:]
    return {part.split("\n", 1)[0]: "## " + part.rstrip() + "\n" for part in parts}


def _machine() -> str:
    today = datetime.datetime.now(datetime.UTC).date()
    return (
        f"{today}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python "
        f"{sys.version.split()[0]}"
    )


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Return the median with minimum and maximum."""
    return f"{median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
