"""From timestamps to offsets: indexes find the segment and the batch, and the batch's records the
offset.

Everything that may be on disk is read in a thread: a log may have thousands of segments that were
not used since the broker started. A large or compressed batch is opened in the child process: the
event loop does not iterate over records.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_TIMESTAMP
from penstock.limits import BATCH_HEADER_BYTES
from penstock.log.files import OpenFiles
from penstock.log.index import TimestampOffset
from penstock.log.log import Log
from penstock.log.scanning import BatchPosition
from penstock.log.segment import Segment, TimeHint
from penstock.log.times import learn_times
from penstock.records.batch import HEADER, BatchHeader
from penstock.records.record import rows_of
from penstock.world import Disk, World

# A smaller batch without compression is opened in the thread that finds it.
_SMALL_BYTES = 4096


class TimedOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


async def offset_for_timestamp(log: Log, world: World, timestamp: int) -> TimedOffset | None:
    """Return the first record at or after a timestamp; None if there is none."""
    await _learn_all_times(log, world)
    start = log.start_offset
    for segment, end_offset in _extents(log):
        if end_offset <= start or _largest(log, segment).timestamp < timestamp:
            continue
        found = await _in_segment(log, world, segment, timestamp, start)
        if found is not None:
            return found
    return None


async def offset_of_max_timestamp(log: Log, world: World) -> TimedOffset | None:
    """Return the first record with the largest timestamp of the log."""
    await _learn_all_times(log, world)
    largest, segment = max(
        ((_largest(log, segment), segment) for segment in log.segments),
        key=lambda found: found[0].timestamp,
    )
    if largest.timestamp == NO_TIMESTAMP:
        return None
    batch = await _find_batch(log, world, segment, largest.timestamp, largest.offset)
    if batch is None:
        return None
    return await _in_batch(world, segment.path, batch, largest.timestamp, log.start_offset)


# Segments


async def _learn_all_times(log: Log, world: World) -> None:
    if log.directory.failure is not None:
        raise log.directory.offline()
    await learn_times(log, world, log.segments)


def _extents(log: Log) -> list[tuple[Segment, int]]:
    """Return each segment with its end offset."""
    ends = [segment.base_offset for segment in log.segments[1:]] + [log.end_offset]
    return list(zip(log.segments, ends, strict=True))


def _largest(log: Log, segment: Segment) -> TimestampOffset:
    """Return the largest timestamp of a segment. Raises KafkaError if it is damaged, or new since
    timestamps were read."""
    largest = segment.known_max_timestamp
    if largest is None:
        reason = log.damage or "it changed during a lookup by timestamp; retry"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{segment.path}: {reason}")
    return largest


async def _in_segment(
    log: Log, world: World, segment: Segment, timestamp: int, start_offset: int
) -> TimedOffset | None:
    """Look into batches until a record is found. Records before the log's start do not count, so a
    batch with a large enough timestamp may have none."""
    from_offset = start_offset
    while True:
        batch = await _find_batch(log, world, segment, timestamp, from_offset)
        if batch is None:
            return None
        found = await _in_batch(world, segment.path, batch, timestamp, start_offset)
        if found is not None:
            return found
        from_offset = batch[1].next_offset


async def _find_batch(
    log: Log, world: World, segment: Segment, timestamp: int, from_offset: int
) -> BatchPosition | None:
    """Return the first batch of a segment that has a record at or after a timestamp, ignoring
    batches before an offset."""
    # The indexes of a segment that is written to are in memory; those on disk are older.
    hint = segment.time_hint(timestamp, from_offset) if segment.has_indexes_in_memory else None
    try:
        return await world.offload.read(
            _find_in_files,
            world.disk,
            log.path,
            segment.base_offset,
            segment.size,
            timestamp,
            from_offset,
            hint,
        )
    except FileNotFoundError as error:
        raise _changed(segment.path) from error
    except OSError as error:
        raise log.directory.fail(f"looking up a timestamp in {log.partition}", error) from error


def _find_in_files(
    disk: Disk,
    directory: str,
    base_offset: int,
    size: int,
    timestamp: int,
    from_offset: int,
    hint: TimeHint | None,
) -> BatchPosition | None:
    """Blocks, and shares nothing with the log's segment."""
    files = OpenFiles(disk, read_only=True)
    segment = Segment(files, directory, base_offset, active=False, created_ms=0, size=size)
    hint = hint or segment.time_hint(timestamp, from_offset)
    return segment.find_timestamp(timestamp, from_offset, hint)


def _changed(path: str) -> KafkaError:
    message = f"{path} was moved, deleted or compacted during a lookup by timestamp; retry"
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)


# Batches


async def _in_batch(
    world: World, path: str, batch: BatchPosition, timestamp: int, start_offset: int
) -> TimedOffset | None:
    position, header = batch
    arguments = (path, position, header, timestamp, start_offset)
    try:
        if header.size <= _SMALL_BYTES and header.codec == 0:
            return await world.offload.read(first_at, world.disk, *arguments)
        return await world.offload.process(first_at, *arguments)
    except FileNotFoundError as error:
        raise _changed(path) from error
    except OSError as error:
        message = f"cannot look for a timestamp in {path}: {error}"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error


def first_at(
    disk: Disk,
    path: str,
    position: int,
    header: BatchHeader,
    timestamp: int,
    start_offset: int,
) -> TimedOffset | None:
    """Return the first record of a batch at or after a timestamp and the log's start. Raises
    FileNotFoundError if another file has taken the place of the segment, after a compaction."""
    file = disk.open(path)
    try:
        data = file.pread(header.size, position)
    finally:
        file.close()
    if data[:BATCH_HEADER_BYTES] != HEADER.pack(*header):
        raise FileNotFoundError(f"{path} was replaced")
    if header.log_append_time:
        return TimedOffset(
            header.max_timestamp, max(header.base_offset, start_offset), header.leader_epoch
        )
    for offset, time, *_rest in rows_of(data, header):
        if time >= timestamp and offset >= start_offset:
            return TimedOffset(time, offset, header.leader_epoch)
    return None
