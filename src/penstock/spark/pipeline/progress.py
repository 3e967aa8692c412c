"""The progress of a query over a run, from Spark's StreamingQueryProgress of each batch. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.spark.pipeline.parsing import DEAD_LETTERS
from penstock.spark.source.offsets import SourceOffset

# Spark reports this while there is no watermark.
_NO_WATERMARK = "1970-01-01T00:00:00.000Z"


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """Rows, late rows and dead letters are sums over this run; `status` is Spark's description of
    what the query does now; the rest describes the last batch."""

    timestamp: str = ""
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
    status: str = ""

    def after(self, reported: Mapping[str, Any]) -> QueryProgress:
        """Add a StreamingQueryProgress in JSON form. One that was added before has no effect."""
        if reported["timestamp"] <= self.timestamp:
            return self
        watermark = reported.get("eventTime", {}).get("watermark")
        operators = reported.get("stateOperators", ())
        late_rows = sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators)
        dead_letters = reported.get("observedMetrics", {}).get(DEAD_LETTERS)
        return QueryProgress(
            timestamp=reported["timestamp"],
            batch=reported["batchId"],
            rows=self.rows + reported["numInputRows"],
            input_rate=reported.get("inputRowsPerSecond") or 0.0,
            processed_rate=reported.get("processedRowsPerSecond") or 0.0,
            batch_ms=reported.get("batchDuration", 0),
            lag=_lag(reported) or self.lag,
            watermark=watermark if watermark != _NO_WATERMARK else None,
            state_rows=sum(operator["numRowsTotal"] for operator in operators)
            if operators
            else None,
            late_rows=self.late_rows + late_rows,
            dead_letters=self.dead_letters
            if dead_letters is None
            else (self.dead_letters or 0) + dead_letters["rows"],
            status=self.status,
        )

    def with_status(self, message: str) -> QueryProgress:
        return self if message == self.status else replace(self, status=message)


def topic_lag(read: SourceOffset, latest: SourceOffset) -> dict[str, int]:
    """Return the number of unread offsets of each topic."""
    lag: dict[str, int] = {}
    for partition, end in latest.offsets.items():
        unread = max(end - read.offsets.get(partition, 0), 0)
        lag[partition.topic] = lag.get(partition.topic, 0) + unread
    return lag


def _lag(reported: Mapping[str, Any]) -> dict[str, int]:
    """Return the lag of all Penstock sources; other sources have offsets of another format."""
    lag: dict[str, int] = {}
    for source in reported.get("sources", ()):
        try:
            read, latest = (
                SourceOffset.from_json(_offset_json(source[name]))
                for name in ("endOffset", "latestOffset")
            )
        except ValueError:
            continue
        lag.update(topic_lag(read, latest))
    return lag


def _offset_json(reported: Any) -> Mapping[str, Any]:
    """Spark reports offsets as JSON, or as a string that contains JSON."""
    value = json.loads(reported) if isinstance(reported, str) else reported
    if not isinstance(value, dict):
        raise ValueError(f"{reported!r} is not an offset of topics")
    return value
