"""Offset ranges of a batch, from resume offsets and rate limits to input partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from penstock.ids import NO_UUID, TopicPartition
from penstock.spark.source.data_loss import RECREATED, DataLoss, log_start_moved
from penstock.spark.source.offsets import Snapshot, SourceOffset


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The value of an InputPartition: offsets of one partition, end exclusive."""

    topic: str
    topic_id: UUID
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def resume_offsets(
    start: SourceOffset, snapshot: Snapshot
) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    """Return the offset at which each existing partition resumes, and the offsets that were lost
    since. New partitions are read from offset 0."""
    resumed: dict[TopicPartition, int] = {}
    losses = [
        _deleted(partition, offset)
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
            reason = f"the log ends at offset {latest}; an unclean leader election truncated it"
            losses.append(DataLoss(partition, latest, offset, reason))
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


def batch_ranges(
    start: SourceOffset, end: SourceOffset, snapshot: Snapshot
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
    deleted = [
        _deleted(partition, start.offsets.get(partition, 0), offset)
        for partition, offset in end.offsets.items()
        if partition not in existing and start.offsets.get(partition, 0) < offset
    ]
    earliest = {
        partition: min(snapshot.earliest[partition], offset)
        for partition, offset in existing.items()
    }
    planned = Snapshot({**start.topic_ids, **end.topic_ids}, earliest, existing)
    resumed, losses = resume_offsets(start, planned)
    topic_ids = snapshot.topic_ids
    ranges = [
        OffsetRange(
            partition.topic,
            topic_ids.get(partition.topic, NO_UUID),
            partition.partition,
            resumed[partition],
            offset,
        )
        for partition, offset in existing.items()
    ]
    return (
        [offset_range for offset_range in ranges if offset_range.size > 0],
        deleted + [loss for loss in losses if loss.partition in existing],
    )


def split_ranges(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Return one range per input partition of Spark, by default one per Kafka partition.

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


def _deleted(partition: TopicPartition, start: int, end: int | None = None) -> DataLoss:
    reason = "the partition does not exist any more; its topic was deleted"
    return DataLoss(partition, start, end, reason)
