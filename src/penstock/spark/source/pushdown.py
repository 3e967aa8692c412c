"""What filters on topic, partition, offset and timestamp say of where the rows can be. Pure.

Bounds may be too wide, never too narrow: Spark applies the filters to each row all the same. Times
are a lower bound only, because a log's timestamps need not rise: the offset of a time says that no
earlier record is so young, and nothing of the records behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from penstock.ids import TopicPartition
from penstock.spark.option_values import MAX_INT64
from penstock.spark.source.offsets import Range
from penstock.spark.source.resolving import NO_SUCH_TIME

_BOUND_BELOW = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual")


@dataclass(frozen=True, slots=True)
class Bounds:
    """None is no bound; `end` is exclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    end: int = MAX_INT64
    since_ms: int | None = None

    def wants(self, one: TopicPartition) -> bool:
        return (self.topics is None or one.topic in self.topics) and (
            self.partitions is None or one.partition in self.partitions
        )

    def narrow(self, one: Range, young: int | None) -> Range:
        """`young` is the first offset that `since_ms` has, NO_SUCH_TIME where no record is so
        young."""
        start = one.end if young == NO_SUCH_TIME else max(one.start, self.start, young or 0)
        return replace(one, start=start, end=min(one.end, self.end))


def bounds_of(filters: Iterable[Any]) -> Bounds:
    """Of Spark's filters, those that bound; And of all of them."""
    bounds = Bounds()
    for one in filters:
        column = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else None
        kind, value = type(one).__name__, getattr(one, "value", None)
        if column in ("topic", "partition"):
            bounds = _among(bounds, column, kind, value)
        elif column == "offset" and type(value) is int:
            bounds = _between(bounds, kind, value)
        elif (
            column == "timestamp"
            and isinstance(value, datetime)
            and kind in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual")
        ):
            since_ms = math.floor(_utc(value).timestamp() * 1000)
            bounds = replace(bounds, since_ms=max(since_ms, bounds.since_ms or 0, 0))
    return bounds


def _among(bounds: Bounds, column: str, kind: str, value: Any) -> Bounds:
    if kind not in ("EqualTo", "EqualNullSafe", "In"):
        return bounds
    values = frozenset(value if kind == "In" else (value,))
    if column == "topic":
        return replace(bounds, topics=values if bounds.topics is None else bounds.topics & values)
    return replace(
        bounds, partitions=values if bounds.partitions is None else bounds.partitions & values
    )


def _between(bounds: Bounds, kind: str, value: int) -> Bounds:
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
