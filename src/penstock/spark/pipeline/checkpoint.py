"""What the checkpoint directory of a pipeline says of its queries, read without Spark: how far each
is, and what its last batch read.

The files are Spark's: for each batch `offsets/<n>` is written before it and `commits/<n>` after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.client.client import Client
from penstock.client.offsets import LATEST, Isolation
from penstock.ids import TopicPartition
from penstock.spark.option_values import OptionError
from penstock.spark.source.lookup import offsets_at
from penstock.spark.source.offsets import Offsets


@dataclass(frozen=True, slots=True)
class QueryState:
    """`batch` is the last that was done, `begun` the last that was begun: it is done again where
    they differ. Offsets are exclusive."""

    name: str
    batch: int | None
    begun: int | None
    time_ms: int | None
    watermark_ms: int | None
    offsets: Mapping[TopicPartition, int]


def default_checkpoint(pipeline: Path) -> str:
    return str(pipeline.resolve().parent / ".checkpoint" / pipeline.stem)


def queries_of(checkpoint: Path) -> list[QueryState]:
    """OptionError where the directory has no query."""
    found = (
        [_state(one) for one in sorted(checkpoint.iterdir()) if (one / "offsets").is_dir()]
        if checkpoint.is_dir()
        else []
    )
    if not found:
        raise OptionError(
            f"{checkpoint} has no checkpoint of a query: give the directory that was --checkpoint "
            "of penstock pipeline run"
        )
    return found


def records_of_batch(query: Path) -> str:
    """In words, the records of the last batch that was begun; nothing where no checkpoint on this
    machine has it."""
    batch = _last(query / "offsets")
    if batch is None:
        return ""
    ends, before = _offsets(query, batch), _offsets(query, batch - 1)
    began = before.at if ends.began is None else ends.began
    ranges = [
        f"{one} offsets {began.get(one, 0)} to {end - 1}"
        for one, end in sorted(ends.at.items())
        if end > began.get(one, 0)
    ]
    return f"its batch {batch} had to read {', '.join(ranges)}" if ranges else ""


async def ends_of(client: Client, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the logs end that there are."""
    existing = {
        TopicPartition(topic.name, one.index)
        for topic in await client.admin.describe_topics()
        for one in topic.partitions
    }
    return await offsets_at(
        client, dict.fromkeys(sorted(partitions & existing), LATEST), Isolation.READ_COMMITTED
    )


def _state(query: Path) -> QueryState:
    batch, begun = _last(query / "commits"), _last(query / "offsets")
    about = _about(query, begun)
    watermark_ms = about.get("batchWatermarkMs")
    offsets = _offsets(query, batch).at if batch is not None else {}
    return QueryState(
        query.name, batch, begun, about.get("batchTimestampMs"), watermark_ms or None, offsets
    )


def _last(directory: Path) -> int | None:
    return max((int(one.name) for one in directory.glob("*") if one.name.isdecimal()), default=None)


def _about(query: Path, batch: int | None) -> dict[str, Any]:
    lines = _lines(query, batch)
    found: dict[str, Any] = json.loads(lines[0]) if lines else {}
    return found


def _offsets(query: Path, batch: int) -> Offsets:
    """Of all sources that are topics; others have offsets of another form."""
    at: dict[TopicPartition, int] = {}
    began: dict[TopicPartition, int] | None = None
    for line in _lines(query, batch)[1:]:
        try:
            one = Offsets.from_json(json.loads(line))
        except (AttributeError, ValueError):
            continue
        at.update(one.at)
        began = {**(began or {}), **one.began} if one.began is not None else began
    return Offsets(at, began=began)


def _lines(query: Path, batch: int | None) -> list[str]:
    """Behind the version: what is said of the batch, then a line for each source."""
    path = query / "offsets" / str(batch)
    return path.read_text().splitlines()[1:] if path.is_file() else []
