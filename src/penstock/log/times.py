"""The timestamps of segments, read in a thread.

A log knows the timestamps of the segments that it wrote. Those of older segments are on disk, which
may be slow, and a segment may be damaged: then the log is marked as damaged, and it lives on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.errors import KafkaError
from penstock.log.files import OpenFiles
from penstock.log.log import Log
from penstock.log.segment import Segment, SegmentTimes
from penstock.world import Disk, World


class _Place(NamedTuple):
    directory: str
    base_offset: int
    size: int


class _Damaged(NamedTuple):
    error: KafkaError
    modified_ms: int


async def learn_times(log: Log, world: World, segments: Iterable[Segment]) -> None:
    """Read the timestamps of segments that do not know them. A segment that was removed, compacted
    or moved meanwhile still does not know them. Raises KafkaError if the log directory is
    offline."""
    unknown = [segment for segment in segments if not segment.has_times]
    if not unknown:
        return
    places = [_Place(log.path, segment.base_offset, segment.size) for segment in unknown]
    try:
        found = await world.offload.read(_read_all, world.disk, places)
    except OSError as error:
        raise log.directory.fail(f"reading {log.partition}", error) from error
    for segment, place, times in zip(unknown, places, found, strict=True):
        if segment.has_times or segment.size != place.size or log.path != place.directory:
            continue
        if isinstance(times, _Damaged):
            log.mark_damaged(times.error)
            segment.assume_time(times.modified_ms)
        elif times is not None:
            segment.set_times(times)


def _read_all(disk: Disk, places: list[_Place]) -> list[SegmentTimes | _Damaged | None]:
    return [_read(disk, place) for place in places]


def _read(disk: Disk, place: _Place) -> SegmentTimes | _Damaged | None:
    """Return the timestamps of a segment; None if it is gone. Shares nothing with the log's
    segment."""
    files = OpenFiles(disk, read_only=True)
    segment = Segment(
        files, place.directory, place.base_offset, active=False, created_ms=0, size=place.size
    )
    try:
        try:
            return SegmentTimes(segment.first_timestamp, segment.max_timestamp)
        except KafkaError as error:
            return _Damaged(error, disk.modified_ms(segment.path))
    except FileNotFoundError:
        return None
