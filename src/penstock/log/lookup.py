"""From timestamps to offsets: the log finds the batch, and its records the offset.

A large or compressed batch is opened in the child process: the event loop does not iterate over
records.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import BATCH_HEADER_BYTES
from penstock.log.files import FileRange
from penstock.log.log import Log
from penstock.records.batch import HEADER, BatchHeader, read_header
from penstock.records.record import rows_of
from penstock.world import Disk, World

_INLINE_BYTES = 4096


class TimedOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


async def offset_for_timestamp(log: Log, world: World, timestamp: int) -> TimedOffset | None:
    """Return the first record at or after a timestamp; None if there is none."""
    batch = log.find_timestamp(timestamp)
    return None if batch is None else await _in_batch(world, batch, timestamp, log.start_offset)


async def offset_of_max_timestamp(log: Log, world: World) -> TimedOffset | None:
    """Return the first record with the largest timestamp of the log."""
    batch = log.find_max_timestamp()
    if batch is None:
        return None
    largest = read_header(batch.file.pread(BATCH_HEADER_BYTES, batch.position)).max_timestamp
    return await _in_batch(world, batch, largest, log.start_offset)


async def _in_batch(
    world: World, batch: FileRange, timestamp: int, start_offset: int
) -> TimedOffset | None:
    header = read_header(batch.file.pread(BATCH_HEADER_BYTES, batch.position))
    arguments = (batch.file.path, batch.position, batch.length, timestamp, start_offset, header)
    if batch.length <= _INLINE_BYTES and header.codec == 0:
        return first_at(world.disk, *arguments)
    try:
        return await world.offload.process(first_at, *arguments)
    except FileNotFoundError as error:
        message = (
            f"{batch.file.path} was moved, deleted or compacted during a lookup by timestamp; retry"
        )
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error


def first_at(
    disk: Disk,
    path: str,
    position: int,
    length: int,
    timestamp: int,
    start_offset: int,
    header: BatchHeader,
) -> TimedOffset | None:
    """Return the first record of a batch at or after a timestamp and the log's start. Raises
    FileNotFoundError if another file has taken the place of the segment, after a compaction."""
    file = disk.open(path)
    try:
        data = file.pread(length, position)
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
