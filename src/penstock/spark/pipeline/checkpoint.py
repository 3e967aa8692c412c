"""Reads the last batch and the offsets of each query from a checkpoint directory, without Spark.

The files are Spark's: it writes `offsets/<batch id>` before a batch and `commits/<batch id>` after
it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.client.client import Client
from penstock.client.offsets import LATEST, IsolationLevel
from penstock.ids import TopicPartition
from penstock.spark.options import OptionError
from penstock.spark.source.offset_reader import list_offsets
from penstock.spark.source.offsets import SourceOffset


@dataclass(frozen=True, slots=True)
class QueryCheckpoint:
    """`committed_batch` is the last batch that finished, `planned_batch` the last that started. If
    they differ, Spark repeats the planned batch. Offsets are those of the committed batch, end
    exclusive."""

    name: str
    committed_batch: int | None
    planned_batch: int | None
    time_ms: int | None
    watermark_ms: int | None
    offsets: Mapping[TopicPartition, int]


def default_checkpoint(pipeline: Path) -> str:
    return str(pipeline.resolve().parent / ".checkpoint" / pipeline.stem)


def read_checkpoints(checkpoint: Path) -> list[QueryCheckpoint]:
    """Return the checkpoint of each query. OptionError if the directory has none."""
    queries = (
        [
            read_query(directory, directory.name)
            for directory in sorted(checkpoint.iterdir())
            if (directory / "offsets").is_dir()
        ]
        if checkpoint.is_dir()
        else []
    )
    if not queries:
        raise OptionError(
            f"{checkpoint} contains no checkpoint of a query: run the pipeline first, or specify "
            "the --checkpoint directory of penstock pipeline run"
        )
    return queries


def read_query(query: Path, name: str) -> QueryCheckpoint:
    """Return the checkpoint of one query from its own directory."""
    committed, planned = _last_batch(query / "commits"), _last_batch(query / "offsets")
    metadata = _batch_metadata(query, planned)
    return QueryCheckpoint(
        name=name,
        committed_batch=committed,
        planned_batch=planned,
        time_ms=metadata.get("batchTimestampMs"),
        watermark_ms=metadata.get("batchWatermarkMs") or None,
        offsets=_source_offset(query, committed).offsets if committed is not None else {},
    )


def describe_last_batch(query: Path) -> str:
    """Return the offsets of the last planned batch as text, for an error message; empty if the
    checkpoint is not on this machine."""
    batch = _last_batch(query / "offsets")
    if batch is None:
        return ""
    end, previous = _source_offset(query, batch), _source_offset(query, batch - 1)
    start = previous.offsets if end.first_batch_start is None else end.first_batch_start
    ranges = [
        f"{partition} offsets {start.get(partition, 0)} to {offset - 1}"
        for partition, offset in sorted(end.offsets.items())
        if offset > start.get(partition, 0)
    ]
    return f"batch {batch} reads {', '.join(ranges)}" if ranges else ""


async def latest_offsets(
    client: Client, partitions: set[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the latest committed offset of each partition that exists."""
    existing = {
        TopicPartition(topic.name, partition.index)
        for topic in await client.admin.describe_topics()
        for partition in topic.partitions
    }
    return await list_offsets(
        client, dict.fromkeys(sorted(partitions & existing), LATEST), IsolationLevel.READ_COMMITTED
    )


def _last_batch(directory: Path) -> int | None:
    return max(
        (int(file.name) for file in directory.glob("*") if file.name.isdecimal()), default=None
    )


def _batch_metadata(query: Path, batch: int | None) -> dict[str, Any]:
    lines = _offset_lines(query, batch)
    metadata: dict[str, Any] = json.loads(lines[0]) if lines else {}
    return metadata


def _source_offset(query: Path, batch: int) -> SourceOffset:
    """Return the merged offsets of all Penstock sources; other sources have another format."""
    offsets: dict[TopicPartition, int] = {}
    first_batch_start: dict[TopicPartition, int] | None = None
    for line in _offset_lines(query, batch)[1:]:
        try:
            source = SourceOffset.from_json(json.loads(line))
        except (AttributeError, ValueError):
            continue
        offsets.update(source.offsets)
        if source.first_batch_start is not None:
            first_batch_start = {**(first_batch_start or {}), **source.first_batch_start}
    return SourceOffset(offsets, first_batch_start=first_batch_start)


def _offset_lines(query: Path, batch: int | None) -> list[str]:
    """Return the lines after the version: the metadata of the batch, then one line per source."""
    path = query / "offsets" / str(batch)
    return path.read_text().splitlines()[1:] if path.is_file() else []
