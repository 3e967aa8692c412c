"""How commands print: tables with colours on a terminal, plain text in a pipe, or JSON.

Scripts read the plain text and the JSON, so neither depends on the terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.session import table
from penstock.health.wording import printable

if TYPE_CHECKING:
    from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

_GOOD, _WARNING, _BAD = "green", "yellow", "bold red"
# Words that are a cell of their own: states of brokers, nodes, groups and transactions.
_STYLES = {
    **dict.fromkeys(("live", "ready", "running", "Stable", "CompleteCommit"), _GOOD),
    **dict.fromkeys(
        (
            *("cordoned", "paused", "starting", "stopping", "Assigning", "Reconciling"),
            *("PreparingRebalance", "CompletingRebalance", "PrepareCommit", "PrepareAbort"),
        ),
        _WARNING,
    ),
    **dict.fromkeys(("fenced", "silent", "stopped", "failed", "Dead", "gone", "never"), _BAD),
}
_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?( (B|KB|MB|GB|TB))?")
_ANY_WIDTH = 10_000
_NO_NUMBER, _ZERO = "-", "0"
# Columns in which a number other than 0 is a problem.
_ALARMS = ("UNDER-REPL", "OFFLINE")


def print_json(value: Any) -> None:
    print(json.dumps(value, separators=(",", ":")), flush=True)


def escaped(text: str) -> str:
    """Replace control characters by escapes such as \\n and \\x1b. Clients choose their ids and the
    names of groups; a terminal would execute them, and a line break would be another row."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. In a pipe, cells are separated by at least two blanks."""
    cells = [[escaped(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for line in table(heading, cells):
            print(line)
        return
    from rich.console import Console

    # A row is one line, however narrow the terminal is, so that names can be copied.
    Console(highlight=False, width=_ANY_WIDTH).print(rich_table(heading, cells))


def print_line(text: str) -> None:
    """Print a line that names things which a stranger may have named."""
    print(escaped(text))


def rich_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table for a terminal: states are coloured, columns of numbers are on the right."""
    from rich.table import Table
    from rich.text import Text

    built = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column, name in enumerate(heading):
        cells = [row[column] for row in rows if row[column] != _NO_NUMBER]
        is_number = bool(cells) and all(map(_NUMBER.fullmatch, cells))
        built.add_column(
            name,
            justify="right" if is_number else "left",
            no_wrap=True,
        )
    for row in rows:
        built.add_row(
            *(
                Text(printable(cell), style=_style(name, cell))
                for name, cell in zip(heading, row, strict=True)
            )
        )
    return built


def _style(column: str, cell: str) -> str:
    if column in _ALARMS and cell not in (_ZERO, _NO_NUMBER):
        return _BAD
    return _STYLES.get(cell, "")
