"""Filter pushdown from filters on topic, partition, offset and timestamp to bounds. Pure.

Bounds may be too wide but never too narrow, since Spark applies the filters to every row anyway.
A timestamp filter only gives a lower bound, because timestamps in a log need not be ordered: the
offset of a timestamp proves that no earlier record has that timestamp or a later one. It says
nothing about the records after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from penstock.ids import TopicPartition
from penstock.spark.options.values import MAX_INT64
from penstock.spark.source.offset_reader import NO_OFFSET
from penstock.spark.source.ranges import OffsetRange

_LOWER_BOUNDS = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual")


@dataclass(frozen=True, slots=True)
class FilterBounds:
    """None means unbounded; `end` is exclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    end: int = MAX_INT64
    min_timestamp_ms: int | None = None

    def includes(self, partition: TopicPartition) -> bool:
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    def narrow(self, whole: OffsetRange, timestamp_offset: int | None) -> OffsetRange:
        """`timestamp_offset` is the offset of `min_timestamp_ms`, or NO_OFFSET if no record has
        that timestamp or a later one."""
        start = (
            whole.end
            if timestamp_offset == NO_OFFSET
            else max(whole.start, self.start, timestamp_offset or 0)
        )
        return replace(whole, start=start, end=min(whole.end, self.end))


def filter_bounds(filters: Iterable[Any]) -> FilterBounds:
    """Return the bounds that all of Spark's filters together imply."""
    bounds = FilterBounds()
    for pushed in filters:
        column = pushed.attribute[0] if len(getattr(pushed, "attribute", ())) == 1 else None
        kind, value = type(pushed).__name__, getattr(pushed, "value", None)
        if column in ("topic", "partition"):
            bounds = _bound_values(bounds, column, kind, value)
        elif column == "offset" and type(value) is int:
            bounds = _bound_offsets(bounds, kind, value)
        elif column == "timestamp" and isinstance(value, datetime) and kind in _LOWER_BOUNDS:
            timestamp_ms = math.floor(_utc(value).timestamp() * 1000)
            lowest = max(timestamp_ms, bounds.min_timestamp_ms or 0, 0)
            bounds = replace(bounds, min_timestamp_ms=lowest)
    return bounds


def _bound_values(bounds: FilterBounds, column: str, kind: str, value: Any) -> FilterBounds:
    if kind not in ("EqualTo", "EqualNullSafe", "In"):
        return bounds
    values = frozenset(value if kind == "In" else (value,))
    if column == "topic":
        return replace(bounds, topics=values if bounds.topics is None else bounds.topics & values)
    return replace(
        bounds, partitions=values if bounds.partitions is None else bounds.partitions & values
    )


def _bound_offsets(bounds: FilterBounds, kind: str, value: int) -> FilterBounds:
    start, end = {
        "EqualTo": (value, value + 1),
        "EqualNullSafe": (value, value + 1),
        "GreaterThan": (value + 1, MAX_INT64),
        "GreaterThanOrEqual": (value, MAX_INT64),
        "LessThan": (0, value),
        "LessThanOrEqual": (0, value + 1),
    }.get(kind, (0, MAX_INT64))
    return replace(bounds, start=max(bounds.start, start), end=min(bounds.end, end))


def _utc(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
