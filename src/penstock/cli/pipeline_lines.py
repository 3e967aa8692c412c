"""How a pipeline's queries are shown: as a table that is drawn again and again on a terminal, or as
a line a batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table

from penstock.cli.session import table

if TYPE_CHECKING:
    from penstock.ids import TopicPartition
    from penstock.spark.pipeline.checkpoint import QueryState
    from penstock.spark.pipeline.progress import Progress

_HEADING = [
    "QUERY",
    "BATCH",
    "ROWS",
    "IN/S",
    "DONE/S",
    "BATCH TIME",
    "LAG",
    "WATERMARK",
    "STATE ROWS",
    "LATE ROWS",
    "DEAD LETTERS",
]


def progress_table(queries: Mapping[str, Progress]) -> Table:
    """As wide as the terminal allows."""
    drawn = Table(*_HEADING, box=None, pad_edge=False)
    for name, one in queries.items():
        drawn.add_row(*_cells(name, one))
    return drawn


def _cells(name: str, one: Progress) -> list[str]:
    lag = " ".join(f"{topic}={behind:,}" for topic, behind in sorted(one.lag.items()))
    return [
        name,
        "-" if one.batch is None else str(one.batch),
        f"{one.rows:,}",
        f"{one.input_rate:,.0f}",
        f"{one.processed_rate:,.0f}",
        f"{one.batch_ms / 1000:.1f} s",
        lag or "-",
        one.watermark or "-",
        "-" if one.state_rows is None else f"{one.state_rows:,}",
        f"{one.late_rows:,}",
        "-" if one.dead_letters is None else f"{one.dead_letters:,}",
    ]


def batch_line(name: str, one: Progress) -> str:
    """What a terminal's table has, for a log."""
    cells = zip(_HEADING[1:], _cells(name, one)[1:], strict=True)
    return f"{name}: " + ", ".join(
        f"{heading.lower()} {cell}" for heading, cell in cells if cell != "-"
    )


def status_lines(
    queries: Iterable[QueryState], ends: Mapping[TopicPartition, int], *, as_json: bool
) -> list[str]:
    """A line for each partition that a query reads. A topic that is gone has no end."""
    rows = [row for query in queries for row in _rows(query, ends)]
    if as_json:
        return [json.dumps(rows)]
    heading = [
        "QUERY",
        "BATCH",
        "BEGUN",
        "TIME",
        "WATERMARK",
        "TOPIC",
        "PARTITION",
        "OFFSET",
        "END",
        "LAG",
    ]
    return table(
        heading, [["-" if cell is None else str(cell) for cell in row.values()] for row in rows]
    )


def _rows(query: QueryState, ends: Mapping[TopicPartition, int]) -> list[dict[str, Any]]:
    about = {
        "query": query.name,
        "batch": query.batch,
        "begun": query.begun,
        "time": _time(query.time_ms),
        "watermark": _time(query.watermark_ms),
    }
    nothing = {"topic": None, "partition": None, "offset": None, "end": None, "lag": None}
    found = [
        {
            **about,
            "topic": one.topic,
            "partition": one.partition,
            "offset": at,
            "end": ends.get(one),
            "lag": max(ends[one] - at, 0) if one in ends else None,
        }
        for one, at in sorted(query.offsets.items())
    ]
    return found or [{**about, **nothing}]


def _time(time_ms: int | None) -> str | None:
    return (
        None
        if time_ms is None
        else datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
    )
