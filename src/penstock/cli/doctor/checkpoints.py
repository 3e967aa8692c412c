"""Reads the progress of Spark queries from a checkpoint directory, without Spark.

Spark writes `offsets/<batch>` before a batch and `commits/<batch>` after it. The first line of an
offsets file is its version, the second the metadata of the batch, the others are the end offsets of
the sources. Offsets of format("penstock") and of Spark's Kafka connector are
{"topic": {"0": 12, …}}; lines of other sources are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.ids import TopicPartition

# The last batches that the rate of a query is measured over.
_MEASURED_BATCHES = 10
_MAX_FILE_BYTES = 16 * 1024 * 1024


class NoCheckpoint(ValueError):
    """The directory has no checkpoint of a query."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`offsets` end the committed batch. `rate` is in records per second, over `_MEASURED_BATCHES`;
    None before the second batch."""

    name: str
    committed_batch: int | None
    planned_batch: int | None
    committed_ms: int | None
    planned_ms: int | None
    rate: float | None
    batch_ms: float | None
    offsets: Mapping[TopicPartition, int]


def read_checkpoints(directory: Path) -> list[Checkpoint]:
    """Return the checkpoint of the query in a directory, or of each query in its directories."""
    try:
        queries = [directory] if (directory / "offsets").is_dir() else sorted(directory.iterdir())
        found = [_read(query) for query in queries if (query / "offsets").is_dir()]
    except OSError as error:
        raise NoCheckpoint(f"cannot read {directory}: {error.strerror or error}") from error
    if not found:
        raise NoCheckpoint(
            f"{directory} has no checkpoint of a query: give the checkpointLocation of a query, or "
            "the --checkpoint of penstock pipeline run"
        )
    return found


def _read(query: Path) -> Checkpoint:
    committed, planned = _batches(query / "commits"), _batches(query / "offsets")
    last = committed[-1] if committed else None
    # A batch may be removed between two looks; Spark keeps the last hundred.
    measured = [batch for batch in committed if batch in planned][-_MEASURED_BATCHES:]
    rate = batch_ms = None
    offsets = {} if last is None else _offsets(query, last)[1]
    if len(measured) > 1:
        first_ms, first = _offsets(query, measured[0])
        last_ms, after = _offsets(query, measured[-1])
        if first_ms is not None and last_ms is not None and last_ms > first_ms:
            read = sum(after.get(name, at) - at for name, at in first.items())
            rate = max(read, 0) * 1000 / (last_ms - first_ms)
            batch_ms = (last_ms - first_ms) / (len(measured) - 1)
    return Checkpoint(
        query.name,
        last,
        planned[-1] if planned else None,
        None if last is None else _modified_ms(query / "commits" / str(last)),
        _modified_ms(query / "offsets" / str(planned[-1])) if planned else None,
        rate,
        batch_ms,
        offsets,
    )


def _batches(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(file.name) for file in directory.iterdir() if file.name.isdecimal())


def _modified_ms(file: Path) -> int | None:
    try:
        return int(file.stat().st_mtime * 1000)
    except FileNotFoundError:
        return None


def _offsets(query: Path, batch: int) -> tuple[int | None, dict[TopicPartition, int]]:
    """Return the start of a batch, and the offsets at which it ends."""
    file = query / "offsets" / str(batch)
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            return None, {}
        lines = file.read_text(errors="replace").splitlines()[1:]
    except FileNotFoundError:
        return None, {}
    values = [_json(line) for line in lines]
    started = values[0].get("batchTimestampMs") if values else None
    offsets = {
        TopicPartition(topic, int(index)): offset
        for value in values[1:]
        for topic, numbers in value.items()
        if isinstance(numbers, dict) and not topic.startswith("#")
        for index, offset in numbers.items()
        if index.isdecimal() and isinstance(offset, int)
    }
    return started if isinstance(started, int) else None, offsets


def _json(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
