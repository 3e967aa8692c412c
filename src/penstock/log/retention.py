"""Which segments a log may let go of. PURE: from sizes, times and offsets to a number of segments,
oldest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.config.topic import LogConfig


class SegmentFacts(NamedTuple):
    """What retention looks at. The end offset is that of the segment: where the next one begins.
    Its time may have to be read from a disk that is slow, so that it is asked for where it counts
    only."""

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
    """How many of the oldest segments go, by the log's start, its age or its size. Nothing above
    the high watermark does."""
    replicated = _prefix(segments, lambda segment: segment.end_offset <= high_watermark)
    before_start = _prefix(segments[:-1], lambda segment: segment.end_offset <= start_offset)
    if not config.deletes:
        return min(before_start, replicated)
    return min(
        max(before_start, _too_old(segments, config, now_ms), _too_much(segments, config)),
        replicated,
    )


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


def _prefix(segments: Sequence[SegmentFacts], goes: Callable[[SegmentFacts], bool]) -> int:
    """The number of leading segments for which it holds."""
    return next(
        (number for number, segment in enumerate(segments) if not goes(segment)), len(segments)
    )
