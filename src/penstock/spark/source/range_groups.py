"""Groups offset ranges into Spark's input partitions, one task each. Pure.

A task costs Spark some 10 ms whatever it reads. A topic with many partitions and few new records is
therefore read by few tasks, each of which fetches the ranges of many partitions with one request
per broker. A topic with few partitions, or with many records, has one task per partition.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock.spark.source.ranges import OffsetRange

# Tasks of a batch by default: this many per core, so that the slowest task does not leave the other
# cores idle for long, or one per this many records, whichever is more. The planner knows the cores
# of its own machine only.
TASKS_PER_CORE = 4
RECORDS_PER_TASK = 50_000
# What a range costs a task beside its records, in records.
_RANGE_COST = 500


@dataclass(frozen=True, slots=True)
class RangeGroup:
    """The value of an InputPartition: ranges of different partitions, which one task reads, and the
    addresses of the brokers, for a task that cannot reach the bootstrap servers."""

    ranges: tuple[OffsetRange, ...]
    known_brokers: tuple[tuple[str, int], ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle each topic once: Spark sends a group with its task."""
        topics: dict[tuple[str, UUID], list[int]] = {}
        for each in self.ranges:
            topics.setdefault((each.topic, each.topic_id), []).extend(
                (each.partition, each.start, each.end)
            )
        packed = tuple((name, id_.bytes, tuple(rest)) for (name, id_), rest in topics.items())
        return _unpack, (packed, self.known_brokers)


def _unpack(
    packed: tuple[tuple[str, bytes, tuple[int, ...]], ...],
    known_brokers: tuple[tuple[str, int], ...],
) -> RangeGroup:
    ranges = []
    for name, id_bytes, numbers in packed:
        topic_id = UUID(bytes=id_bytes)
        ranges += [
            OffsetRange(name, topic_id, *numbers[at : at + 3]) for at in range(0, len(numbers), 3)
        ]
    return RangeGroup(tuple(ranges), known_brokers)


def task_count(ranges: Sequence[OffsetRange], cores: int, min_partitions: int | None) -> int:
    """Return how many tasks a batch needs; `group_ranges` makes no more than one per range."""
    records = sum(each.size for each in ranges)
    return max(cores * TASKS_PER_CORE, -(-records // RECORDS_PER_TASK), min_partitions or 1)


def group_ranges(
    ranges: Sequence[OffsetRange], tasks: int, max_records: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """Return groups of about equal cost: `tasks` of them, or more if a group would have more than
    `max_records` records (maxRecordsPerPartition).

    Pieces of one partition stay in groups of their own.
    """
    if len(ranges) <= tasks:
        return [(each,) for each in ranges]
    pieces = Counter((each.topic, each.partition) for each in ranges)
    alone = [each for each in ranges if pieces[each.topic, each.partition] > 1]
    whole = [each for each in ranges if pieces[each.topic, each.partition] == 1]
    count = max(min(tasks - len(alone), len(whole)), 1)
    groups: list[list[OffsetRange]] = [[] for _ in range(count)]
    # Cost, index and records of each group. The largest ranges are placed first, each in the
    # cheapest group.
    heap = [(0, index, 0) for index in range(count)]
    for each in sorted(whole, key=lambda each: -each.size):
        cost, index, records = heap[0]
        if max_records is not None and records and records + each.size > max_records:
            groups.append([each])
            heapq.heappush(heap, (each.size + _RANGE_COST, len(groups) - 1, each.size))
            continue
        groups[index].append(each)
        heapq.heapreplace(heap, (cost + each.size + _RANGE_COST, index, records + each.size))
    grouped = [tuple(sorted(group, key=_order)) for group in groups if group]
    return sorted([*grouped, *((each,) for each in alone)], key=lambda group: _order(group[0]))


def _order(offset_range: OffsetRange) -> tuple[str, int, int]:
    return offset_range.topic, offset_range.partition, offset_range.start
