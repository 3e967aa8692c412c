"""Offset ranges of a batch, from resume offsets and rate limits to ranges of a bounded size. Pure.

`range_groups` distributes them to tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from penstock.ids import NO_UUID, TopicPartition
from penstock.spark.options.source import Subscription
from penstock.spark.source.data_loss import RECREATED, DataLoss, log_start_moved
from penstock.spark.source.offsets import Snapshot, SourceOffset


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition, end exclusive."""

    topic: str
    topic_id: UUID
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def resume_offsets(
    start: SourceOffset, snapshot: Snapshot, subscription: Subscription | None = None
) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    """Return the offset at which each existing partition resumes, and the offsets that were lost
    since. New partitions are read from offset 0."""
    resumed: dict[TopicPartition, int] = {}
    losses = [
        _absent(partition, offset, None, subscription)
        for partition, offset in start.offsets.items()
        if partition not in snapshot.latest and not snapshot.recreated(start, partition.topic)
    ]
    for partition, latest in snapshot.latest.items():
        earliest, offset = snapshot.earliest[partition], start.offsets.get(partition, 0)
        if snapshot.recreated(start, partition.topic):
            losses.append(DataLoss(partition, offset, None, RECREATED))
            resumed[partition] = earliest
            continue
        if offset < earliest:
            losses.append(log_start_moved(partition, offset, earliest, earliest))
        elif offset > latest:
            losses.append(_truncated(partition, latest, latest, offset))
        resumed[partition] = min(max(offset, earliest), latest)
    return resumed, losses


def rate_limited(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    max_offsets: int,
) -> dict[TopicPartition, int]:
    """Return end offsets that include about `max_offsets` in all: from each partition in proportion
    to its backlog, and at least one."""
    backlog = {partition: max(end - start[partition], 0) for partition, end in latest.items()}
    total = sum(backlog.values())
    if total <= max_offsets:
        return dict(latest)
    return {
        partition: start[partition] + (max(max_offsets * size // total, 1) if size else 0)
        for partition, size in backlog.items()
    }


def next_offset(
    start: SourceOffset, batch_end: Mapping[TopicPartition, int], snapshot: Snapshot
) -> SourceOffset:
    """Return the offset at which a batch ends. It keeps the offsets of partitions that the snapshot
    does not have, in case that they come back."""
    missing = {
        partition: offset
        for partition, offset in start.offsets.items()
        if partition not in snapshot.latest and not snapshot.recreated(start, partition.topic)
    }
    topic_ids = {
        **{partition.topic: start.topic_id(partition.topic) for partition in missing},
        **snapshot.topic_ids,
    }
    return SourceOffset(
        {**missing, **batch_end},
        topic_ids,
        first_batch_start=start.offsets if start.initial else None,
    )


def batch_ranges(
    start: SourceOffset,
    end: SourceOffset,
    snapshot: Snapshot,
    subscription: Subscription | None = None,
) -> tuple[list[OffsetRange], list[DataLoss]]:
    """Return the ranges of a batch, and the offsets that were lost. When Spark repeats a batch
    after a restart, the cluster may have changed since the end was written."""
    if end.first_batch_start is not None:
        start = SourceOffset(end.first_batch_start, end.topic_ids)
    existing = {
        partition: offset
        for partition, offset in end.offsets.items()
        if partition in snapshot.earliest and not snapshot.recreated(end, partition.topic)
    }
    absent = [
        _absent(partition, start.offsets.get(partition, 0), offset, subscription)
        for partition, offset in end.offsets.items()
        if partition not in existing and start.offsets.get(partition, 0) < offset
    ]
    earliest = {
        partition: min(snapshot.earliest[partition], offset)
        for partition, offset in existing.items()
    }
    planned = Snapshot({**start.topic_ids, **end.topic_ids}, earliest, existing)
    resumed, losses = resume_offsets(start, planned)
    # ListOffsets never returns an older end than before (KIP-207), unless the log was truncated.
    truncated = [
        _truncated(partition, latest, max(latest, resumed[partition]), offset)
        for partition, offset in existing.items()
        if max(latest := snapshot.latest[partition], resumed[partition]) < offset
    ]
    topic_ids = snapshot.topic_ids
    ranges = [
        OffsetRange(
            partition.topic,
            topic_ids.get(partition.topic, NO_UUID),
            partition.partition,
            resumed[partition],
            min(offset, snapshot.latest[partition]),
        )
        for partition, offset in existing.items()
    ]
    return (
        [offset_range for offset_range in ranges if offset_range.size > 0],
        [*absent, *(loss for loss in losses if loss.partition in existing), *truncated],
    )


def split_ranges(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Return one range per Kafka partition, or several.

    Ranges with more than `max_records` (maxRecordsPerPartition) are split. If there are fewer than
    `min_partitions` (minPartitions), large ranges are split in proportion to their size.
    """
    parts = [offset_range for offset_range in ranges if offset_range.size > 0]
    if max_records is not None:
        parts = [piece for part in parts for piece in _split(part, -(-part.size // max_records))]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(part.size for part in parts)
    large = [part for part in parts if part.size * min_partitions * 2 >= 3 * total]
    large_total = sum(part.size for part in large)
    large_count = min_partitions - len(parts) + len(large)
    return [
        piece
        for part in parts
        for piece in (
            _split(part, _proportion(part.size, large_total, large_count))
            if part in large
            else [part]
        )
    ]


def _proportion(size: int, total: int, count: int) -> int:
    """Round count * size / total to the nearest integer, at least 1."""
    return max((2 * size * count + total) // (2 * total), 1)


def _split(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = min(count, whole.size)
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(edges)]


def _absent(
    partition: TopicPartition, start: int, end: int | None, subscription: Subscription | None
) -> DataLoss:
    reason = "the partition does not exist any more; its topic was deleted"
    if subscription is not None and not subscription.includes(partition):
        reason = (
            "the query does not subscribe to the partition any more, but its checkpoint does. "
            "Subscribe to it again, or set failOnDataLoss to false: the checkpoint then keeps its "
            "offset"
        )
    return DataLoss(partition, start, end, reason)


def _truncated(partition: TopicPartition, latest: int, start: int, end: int) -> DataLoss:
    reason = f"the log ends at offset {latest}; an unclean leader election truncated it"
    return DataLoss(partition, start, end, reason)
