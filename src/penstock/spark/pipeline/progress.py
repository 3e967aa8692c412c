"""A query's progress as people ask for it, made of what Spark reports of each batch. Pure: values
in, values out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.spark.pipeline.records import DEAD_LETTERS
from penstock.spark.source.offsets import Offsets

# What Spark says before there is a watermark.
_NO_WATERMARK = "1970-01-01T00:00:00.000Z"


@dataclass(frozen=True, slots=True)
class Progress:
    """Rows read, rows late and dead letters are sums of this run; the rest is of the last batch."""

    seen_at: str = ""
    batch: int | None = None
    rows: int = 0
    input_rate: float = 0.0
    processed_rate: float = 0.0
    batch_ms: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    watermark: str | None = None
    state_rows: int | None = None
    late_rows: int = 0
    dead_letters: int | None = None

    def after(self, told: Mapping[str, Any]) -> Progress:
        """`told` is Spark's progress in its JSON form."""
        if told["timestamp"] <= self.seen_at:
            return self
        watermark = told.get("eventTime", {}).get("watermark")
        operators = told.get("stateOperators", ())
        dead = told.get("observedMetrics", {}).get(DEAD_LETTERS)
        return Progress(
            seen_at=told["timestamp"],
            batch=told["batchId"],
            rows=self.rows + told["numInputRows"],
            input_rate=told.get("inputRowsPerSecond") or 0.0,
            processed_rate=told.get("processedRowsPerSecond") or 0.0,
            batch_ms=told.get("batchDuration", 0),
            lag=_lag(told) or self.lag,
            watermark=watermark if watermark != _NO_WATERMARK else None,
            state_rows=sum(one["numRowsTotal"] for one in operators) if operators else None,
            late_rows=self.late_rows
            + sum(one.get("numRowsDroppedByWatermark", 0) for one in operators),
            dead_letters=self.dead_letters
            if dead is None
            else (self.dead_letters or 0) + dead["rows"],
        )


def behind(read: Offsets, latest: Offsets) -> dict[str, int]:
    """How many offsets of each topic are not read yet."""
    found: dict[str, int] = {}
    for one, end in latest.at.items():
        found[one.topic] = found.get(one.topic, 0) + max(end - read.at.get(one, 0), 0)
    return found


def _lag(told: Mapping[str, Any]) -> dict[str, int]:
    """Of sources that are topics: others have offsets of another form."""
    found: dict[str, int] = {}
    for source in told.get("sources", ()):
        try:
            read, latest = (
                Offsets.from_json(_value(source[name])) for name in ("endOffset", "latestOffset")
            )
        except ValueError:
            continue
        found.update(behind(read, latest))
    return found


def _value(told: Any) -> Mapping[str, Any]:
    """Spark gives offsets as JSON, or as text with JSON in it."""
    found = json.loads(told) if isinstance(told, str) else told
    if not isinstance(found, dict):
        raise ValueError(f"{told!r} is no offset of topics")
    return found
