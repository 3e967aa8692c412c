"""Filter pushdown. Bounds may be too wide, but never too narrow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock.ids import TopicPartition
from penstock.spark.options.values import MAX_INT64
from penstock.spark.source.offset_reader import NO_OFFSET
from penstock.spark.source.pushdown import FilterBounds, filter_bounds
from penstock.spark.source.ranges import OffsetRange

TIME = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
TIME_MS = 1_767_323_045_678


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([EqualTo(("partition",), 3)], FilterBounds(partitions=frozenset({3}))),
        (
            [In(("partition",), (1, 2)), In(("partition",), (2, 3))],
            FilterBounds(partitions=frozenset({2})),
        ),
        (
            [EqualTo(("topic",), "orders"), EqualTo(("partition",), 0)],
            FilterBounds(frozenset({"orders"}), frozenset({0})),
        ),
        (
            [GreaterThan(("offset",), 4), LessThanOrEqual(("offset",), 9)],
            FilterBounds(start=5, end=10),
        ),
        (
            [GreaterThanOrEqual(("offset",), 4), LessThan(("offset",), 9)],
            FilterBounds(start=4, end=9),
        ),
        ([EqualTo(("offset",), 4)], FilterBounds(start=4, end=5)),
        (
            [GreaterThan(("timestamp",), TIME), EqualTo(("timestamp",), TIME.replace(year=2020))],
            FilterBounds(min_timestamp_ms=TIME_MS),
        ),
        ([LessThan(("timestamp",), TIME)], FilterBounds()),
        (
            [
                Not(EqualTo(("partition",), 3)),
                StringStartsWith(("topic",), "a"),
                EqualTo(("value",), b"x"),
            ],
            FilterBounds(),
        ),
        ([EqualTo(("headers", "partition"), 3)], FilterBounds()),
    ],
)
def test_bounds_of_filters(filters: list[Filter], bounds: FilterBounds) -> None:
    assert filter_bounds(filters) == bounds


def test_bounds_narrow_a_range() -> None:
    whole = OffsetRange("orders", UUID(int=500), 0, 10, 100)

    def narrowed(timestamp_offset: int | None = None, **bounds: Any) -> tuple[int, int]:
        result = FilterBounds(**bounds).narrow(whole, timestamp_offset)
        return result.start, result.end

    assert narrowed() == (10, 100)
    assert narrowed(start=20, end=50) == (20, 50)
    assert narrowed(start=0, end=MAX_INT64) == (10, 100)
    assert narrowed(30) == (30, 100)
    assert narrowed(5) == (10, 100)
    assert narrowed(NO_OFFSET) == (100, 100)


def test_bounds_select_partitions() -> None:
    orders, payments = TopicPartition("orders", 0), TopicPartition("payments", 1)
    assert FilterBounds().includes(orders)
    assert FilterBounds(topics=frozenset({"orders"})).includes(orders)
    assert not FilterBounds(topics=frozenset({"orders"})).includes(payments)
    assert not FilterBounds(partitions=frozenset({1})).includes(orders)
