"""Formats the progress and the checkpoints of a pipeline's queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table

from penstock.cli.output import print_json, print_table

if TYPE_CHECKING:
    from penstock.ids import TopicPartition
    from penstock.spark.pipeline.checkpoint import QueryCheckpoint
    from penstock.spark.pipeline.progress import QueryProgress

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


def progress_table(queries: Mapping[str, QueryProgress]) -> Table:
    progress_rows = Table(*_HEADING, "STATUS", box=None, pad_edge=False)
    for name, progress in queries.items():
        progress_rows.add_row(*_cells(name, progress), progress.status or "-")
    return progress_rows


def _cells(name: str, progress: QueryProgress) -> list[str]:
    lag = " ".join(f"{topic}={offsets:,}" for topic, offsets in sorted(progress.lag.items()))
    return [
        name,
        "-" if progress.batch is None else str(progress.batch),
        f"{progress.rows:,}",
        f"{progress.input_rate:,.0f}",
        f"{progress.processed_rate:,.0f}",
        f"{progress.batch_ms / 1000:.1f} s",
        lag or "-",
        progress.watermark or "-",
        "-" if progress.state_rows is None else f"{progress.state_rows:,}",
        f"{progress.late_rows:,}",
        "-" if progress.dead_letters is None else f"{progress.dead_letters:,}",
    ]


def batch_line(name: str, progress: QueryProgress) -> str:
    """Format a row of the table as one line for a log."""
    cells = zip(_HEADING[1:], _cells(name, progress)[1:], strict=True)
    return f"{name}: " + ", ".join(
        f"{heading.lower()} {cell}" for heading, cell in cells if cell != "-"
    )


def print_status(
    checkpoints: Iterable[QueryCheckpoint],
    latest: Mapping[TopicPartition, int],
    *,
    as_json: bool,
) -> None:
    """Print a row per query and partition. A partition that does not exist any more has no
    end."""
    rows = [row for query in checkpoints for row in _status_rows(query, latest)]
    if as_json:
        print_json(rows)
        return
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
    print_table(
        heading, [["-" if cell is None else str(cell) for cell in row.values()] for row in rows]
    )


def _status_rows(
    query: QueryCheckpoint, latest: Mapping[TopicPartition, int]
) -> list[dict[str, Any]]:
    shared = {
        "query": query.name,
        "batch": query.committed_batch,
        "begun": query.planned_batch,
        "time": _time(query.time_ms),
        "watermark": _time(query.watermark_ms),
    }
    empty = {"topic": None, "partition": None, "offset": None, "end": None, "lag": None}
    rows = [
        {
            **shared,
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": offset,
            "end": latest.get(partition),
            "lag": max(latest[partition] - offset, 0) if partition in latest else None,
        }
        for partition, offset in sorted(query.offsets.items())
    ]
    return rows or [{**shared, **empty}]


def _time(time_ms: int | None) -> str | None:
    return (
        None
        if time_ms is None
        else datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
    )
