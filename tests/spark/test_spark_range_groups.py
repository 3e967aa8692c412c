"""Groups of offset ranges: how many tasks a batch has, what each reads, and how large its pickle
is."""

from __future__ import annotations

import pickle
from collections import Counter
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition

from penstock.spark.source.range_groups import (
    RECORDS_PER_TASK,
    TASKS_PER_CORE,
    RangeGroup,
    group_ranges,
    task_count,
)
from penstock.spark.source.ranges import OffsetRange, split_ranges

TOPIC_ID = UUID(int=1001)


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("wide", TOPIC_ID, index, 7, 7 + size) for index, size in enumerate(sizes)]


def test_wide_topic_with_few_records_has_few_tasks() -> None:
    wide = ranges(*[20] * 1000)
    groups = group_ranges(wide, task_count(wide, cores=2, min_partitions=None))
    assert [len(group) for group in groups] == [125] * 8


def test_topic_with_few_partitions_has_a_task_for_each() -> None:
    few = ranges(10, 20, 30)
    assert group_ranges(few, task_count(few, cores=2, min_partitions=None)) == [
        (each,) for each in few
    ]


def test_tasks_grow_with_the_records() -> None:
    large = ranges(*[RECORDS_PER_TASK] * 1000)
    assert task_count(large, cores=2, min_partitions=None) == 1000
    assert task_count(ranges(*[1000] * 1000), cores=2, min_partitions=None) == 20
    assert task_count(ranges(1), cores=16, min_partitions=None) == 16 * TASKS_PER_CORE


def test_min_partitions_is_a_minimum() -> None:
    wide = ranges(*[20] * 1000)
    assert len(group_ranges(wide, task_count(wide, cores=2, min_partitions=100))) == 100
    assert len(group_ranges(wide, task_count(wide, cores=2, min_partitions=5000))) == 1000


def test_max_records_bounds_each_group() -> None:
    wide = split_ranges(ranges(*[20] * 100, 95), None, max_records=50)
    groups = group_ranges(wide, tasks=8, max_records=50)
    assert max(sum(each.size for each in group) for group in groups) <= 50
    assert sorted(each for group in groups for each in map(_key, group)) == sorted(map(_key, wide))


def test_large_ranges_do_not_share_a_task_with_many_others() -> None:
    groups = group_ranges(ranges(100_000, *[10] * 80), tasks=8)
    assert [len(group) for group in groups if group[0].partition == 0] == [1]


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=60),
    st.integers(1, 20),
    st.none() | st.integers(1, 2 * 10**6),
    st.none() | st.integers(1, 80),
)
def test_each_range_is_in_one_group_and_no_group_reads_a_partition_twice(
    sizes: list[int], tasks: int, max_records: int | None, min_partitions: int | None
) -> None:
    if max_records is not None:
        max_records = max(max_records, max(sizes) // 10)
    pieces = split_ranges(ranges(*sizes), min_partitions, max_records)
    groups = group_ranges(pieces, tasks, max_records)
    assert Counter(each for group in groups for each in group) == Counter(pieces)
    for group in groups:
        assert len({each.partition for each in group}) == len(group)
        assert max_records is None or sum(each.size for each in group) <= max_records


def test_pickled_group_is_small() -> None:
    """Spark pickles an InputPartition per task."""
    group = RangeGroup(
        tuple(OffsetRange("wide", TOPIC_ID, index, 10**9, 10**9 + 20) for index in range(125)),
        (("broker-1.example", 9092), ("broker-2.example", 9092)),
    )
    pickled = pickle.dumps(InputPartition(group))
    assert len(pickled) < 125 * 16 + 400
    assert pickle.loads(pickled).value == group


def _key(offset_range: OffsetRange) -> tuple[int, int]:
    return offset_range.partition, offset_range.start
