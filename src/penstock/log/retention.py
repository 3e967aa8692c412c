"""Which segments retention deletes. PURE: from sizes, timestamps and offsets to a number of
segments, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from penstock.config.topic import LogConfig


class SegmentFacts(NamedTuple):
    """What retention needs to know of a segment. The end offset is the base offset of the next
    segment. The largest timestamp may have to be read from disk, so it is a function."""

    end_offset: int
    size: int
    largest_timestamp: Callable[[], int]


def expired(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """Return how many of the oldest segments are deleted, by log start, age or size. Segments above
    the high watermark stay."""
    replicated = _prefix(segments, lambda segment: segment.end_offset <= high_watermark)
    before_start = _prefix(segments[:-1], lambda segment: segment.end_offset <= start_offset)
    if not config.deletes:
        return min(before_start, replicated)
    return min(
        max(before_start, _too_old(segments, config, now_ms), _too_much(segments, config)),
        replicated,
    )


def next_check_ms(segments: Sequence[SegmentFacts], config: LogConfig) -> float:
    """Return the time before which no segment expires, unless a segment is added, removed or
    truncated, or the log's start moves: infinity if none ever does."""
    if not config.deletes:
        return inf
    if _may_become_too_much(segments, config):
        return -inf
    oldest = segments[0]
    if config.retention_ms < 0 or oldest.size == 0:
        return inf
    return oldest.largest_timestamp() + config.retention_ms + 1


def _may_become_too_much(segments: Sequence[SegmentFacts], config: LogConfig) -> bool:
    """Return True if retention.bytes may be exceeded by the oldest segment before the active one,
    which is the last, is full."""
    if config.retention_bytes < 0 or len(segments) == 1:
        return False
    sealed = sum(segment.size for segment in segments[:-1])
    size = sealed + max(segments[-1].size, config.segment_bytes)
    return size - config.retention_bytes >= segments[0].size


def _too_old(segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> int:
    if config.retention_ms < 0:
        return 0
    return _prefix(
        segments,
        lambda segment: (
            segment.size > 0 and now_ms - segment.largest_timestamp() > config.retention_ms
        ),
    )


def _too_much(segments: Sequence[SegmentFacts], config: LogConfig) -> int:
    if config.retention_bytes < 0:
        return 0
    excess, count = sum(segment.size for segment in segments) - config.retention_bytes, 0
    for segment in segments[:-1]:
        if excess < segment.size:
            break
        excess -= segment.size
        count += 1
    return count


def _prefix(segments: Sequence[SegmentFacts], predicate: Callable[[SegmentFacts], bool]) -> int:
    """Return the number of leading segments that satisfy a predicate."""
    return next(
        (number for number, segment in enumerate(segments) if not predicate(segment)), len(segments)
    )
