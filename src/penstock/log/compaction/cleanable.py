"""Which logs are worth compacting, and how far. PURE: from segments, timestamps and offsets to
numbers, as Kafka's LogCleanerManager decides."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.config.log_settings import MAX_LONG
from penstock.config.topic import LogConfig
from penstock.limits import MAX_COMPACTED_TOGETHER, MAX_RELATIVE_OFFSET


class SealedSegment(Protocol):
    """What the choice needs of a segment. Its timestamps may have to be read from disk, so they are
    read only if required."""

    base_offset: int
    size: int

    @property
    def first_timestamp(self) -> int | None: ...

    def largest_time(self) -> int: ...


class Cleanable(NamedTuple):
    """Where the dirty part of a log begins, where the cleanable part ends (at the base offset of a
    segment), and their sizes."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    def is_due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (
            self.overdue or self.ratio > config.min_cleanable_dirty_ratio
        )


def depends_on_times(config: LogConfig) -> bool:
    """Return True if `cleanable` may need the timestamps of segments."""
    return config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < MAX_LONG


def cleanable(
    segments: Sequence[SealedSegment],
    config: LogConfig,
    first_dirty_offset: int,
    bound: int,
    now_ms: int,
) -> Cleanable:
    """Return what of a log can be compacted. Never the active segment, nor segments that reach past
    the bound (last stable offset, recovery point)."""
    bases = [segment.base_offset for segment in segments]
    first = max(bisect_right(bases, first_dirty_offset) - 1, 0)
    # The segment that holds the bound is not compacted.
    last = max(bisect_right(bases, bound) - 1, 0)
    if config.min_compaction_lag_ms > 0:
        young = now_ms - config.min_compaction_lag_ms
        last = next(
            (number for number in range(first, last) if segments[number].largest_time() > young),
            last,
        )
    dirty = segments[first:last]
    oldest = now_ms - config.max_compaction_lag_ms
    overdue = oldest > 0 and any(0 < (segment.first_timestamp or 0) < oldest for segment in dirty)
    clean_bytes = sum(segment.size for segment in segments[: min(first, last)])
    return Cleanable(
        first_dirty_offset,
        bases[last],
        clean_bytes,
        sum(segment.size for segment in dirty),
        overdue,
    )


class SegmentExtent(NamedTuple):
    """A sealed segment for grouping. The end offset is the base offset of the next segment."""

    base_offset: int
    end_offset: int
    size: int
    index_bytes: int


def grouped(
    segments: Sequence[SegmentExtent], segment_bytes: int, index_bytes: int
) -> list[list[SegmentExtent]]:
    """Group adjacent segments that together are not larger than one segment may be; each group
    becomes one segment."""
    groups: list[list[SegmentExtent]] = []
    for segment in segments:
        if groups and _fits(groups[-1], segment, segment_bytes, index_bytes):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(
    group: list[SegmentExtent], segment: SegmentExtent, segment_bytes: int, index_bytes: int
) -> bool:
    return (
        len(group) < MAX_COMPACTED_TOGETHER
        and sum(member.size for member in group) + segment.size <= segment_bytes
        and sum(member.index_bytes for member in group) + segment.index_bytes <= index_bytes
        and segment.end_offset - group[0].base_offset <= MAX_RELATIVE_OFFSET
    )
