"""Recovery after a crash: reads what may be torn, and truncates the log after the last valid batch.

Works on a directory through a Disk and returns plain values, so that it can run in the child
process while other logs are served. Only segments that reach past the recovery point may have
unsynced data, so only these are read. Everything below the recovery point was synced: a bad batch
there is damage, not a torn tail, and the log is refused instead of truncated (rules 20 and 21).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import BATCH_HEADER_BYTES, MAX_RELATIVE_OFFSET
from penstock.log import names
from penstock.log.checkpoint import CheckpointDamaged, parse_epochs
from penstock.log.files import OpenFiles
from penstock.log.flush import is_unsynced, mark_synced, truncating
from penstock.log.leader_epochs import EpochStart, LeaderEpochs
from penstock.log.producers.replay import (
    apply_batch,
    end_marker,
    load_producers,
    save_snapshot,
    snapshot_offsets,
    snapshot_path,
)
from penstock.log.producers.state import ProducerStates
from penstock.log.scanning import scan_headers
from penstock.log.segment import Segment
from penstock.records.batch import MAGIC, BatchHeader, CorruptBatch, crc_matches, read_header
from penstock.world import Disk, File

_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Recovered:
    """The state of a log after recovery. Notes are log lines: what was truncated, and why."""

    bases: list[int]
    end_offset: int
    epochs: LeaderEpochs
    producers: ProducerStates
    notes: list[str] = field(default_factory=list)
    scanned_bytes: int = 0


def scan_batches(file: File, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield every batch of a file with its position and bytes, with its CRC checked. Raises
    CorruptBatch at the first that is not whole and valid."""
    position = 0
    chunk, chunk_at = memoryview(b""), 0
    while position < end:
        at = position - chunk_at
        if at + BATCH_HEADER_BYTES > len(chunk):
            chunk, chunk_at, at = (
                memoryview(file.pread(min(_CHUNK_BYTES, end - position), position)),
                position,
                0,
            )
        header = read_header(chunk, at)
        size = header.size
        if (
            header.magic != MAGIC
            or size < BATCH_HEADER_BYTES
            or size > end - position
            or header.last_offset_delta < 0
        ):
            raise CorruptBatch(
                f"no whole batch at position {position} (magic {header.magic}, size {size}, "
                f"{end - position} bytes left)"
            )
        if at + size > len(chunk):
            chunk, chunk_at, at = (
                memoryview(file.pread(max(size, min(_CHUNK_BYTES, end - position)), position)),
                position,
                0,
            )
        if not crc_matches(chunk, at, header):
            raise CorruptBatch(
                f"the checksum of the batch at position {position} (offset {header.base_offset}) "
                "does not match"
            )
        yield position, header, chunk[at : at + size]
        position += size


def unflushed(bases: list[int], recovery_point: int) -> int:
    """Return the index of the first segment that reaches past the recovery point. The active
    segment always does."""
    return next(
        (number for number, following in enumerate(bases[1:]) if following > recovery_point),
        len(bases) - 1,
    )


def recover(
    disk: Disk,
    directory: str,
    bases: list[int],
    recovery_point: int,
    index_interval_bytes: int,
    gaps_allowed: bool,
) -> Recovered:
    """Read the unflushed segments of a log, truncate what is torn, and rebuild indexes, producer
    state and epochs.

    Offsets are dense unless compaction made gaps, so a hole shows where a write was lost.
    """
    unsynced = is_unsynced(disk, directory)
    files = OpenFiles(disk)
    first = unflushed(bases, recovery_point)
    flushed = [
        Segment(
            files,
            directory,
            base,
            active=False,
            created_ms=0,
            size=_log_size(disk, directory, base),
        )
        for base in bases[:first]
    ]
    tail = [
        Segment(files, directory, base, active=True, created_ms=0, size=0) for base in bases[first:]
    ]
    start = tail[0].base_offset
    _remove_snapshots_after(disk, directory, start)
    result = Recovered(
        bases[:first], start, LeaderEpochs(_saved_epochs(disk, directory)), ProducerStates()
    )
    result.epochs.truncate_from_end(start)
    result.producers = load_producers(disk, directory, flushed, start, result.notes)
    if flushed and start == recovery_point:
        # The segment may have been sealed after the sync that moved the recovery point to its end;
        # its indexes may then not be on disk.
        rebuild_indexes(disk, directory, flushed[-1].base_offset, index_interval_bytes)
    for number, segment in enumerate(tail):
        if segment.base_offset != result.end_offset and not (
            gaps_allowed and segment.base_offset > result.end_offset
        ):
            with truncating(disk, directory):
                result.notes += _remove(disk, directory, tail[number:])
            break
        result.end_offset = segment.base_offset
        if number:
            save_snapshot(files, directory, segment.base_offset, result.producers)
        problem = _recover_segment(segment, result, index_interval_bytes, gaps_allowed, unsynced)
        if problem is not None:
            _check_recovery_point(recovery_point, result.end_offset, segment.path, problem)
            with truncating(disk, directory):
                result.notes += _remove(disk, directory, tail[number + 1 :]) + _truncate(
                    disk, segment, problem
                )
            break
    if unsynced:
        mark_synced(
            disk,
            directory,
            [segment.file for segment in tail if segment.base_offset in result.bases],
        )
    _check_recovery_point(
        recovery_point, result.end_offset, directory, f"the log ends at offset {result.end_offset}"
    )
    return result


def _recover_segment(
    segment: Segment,
    result: Recovered,
    index_interval_bytes: int,
    gaps_allowed: bool,
    rewrite: bool,
) -> str | None:
    """Add the valid batches of a segment to the result. Return what is wrong with the first invalid
    one."""
    size = segment.file.size()
    result.bases.append(segment.base_offset)
    result.scanned_bytes += size
    segment.reset_indexes()
    problem = None
    try:
        for position, header, batch in scan_batches(segment.file, size):
            if header.base_offset != result.end_offset and not (
                gaps_allowed and header.base_offset > result.end_offset
            ):
                raise CorruptBatch(
                    f"offset {header.base_offset} at position {position} does not follow "
                    f"{result.end_offset - 1}"
                )
            if 0 <= header.leader_epoch < result.epochs.latest:
                raise CorruptBatch(
                    f"leader epoch {header.leader_epoch} at position {position} follows "
                    f"{result.epochs.latest}: a stale tail"
                )
            segment.note(header, index_interval_bytes)
            result.epochs.assign(header.leader_epoch, header.base_offset)
            apply_batch(
                result.producers,
                header,
                end_marker(header, batch) if header.is_control else None,
                segment,
            )
            result.end_offset = header.next_offset
            if rewrite:
                segment.file.pwrite(batch, position)
    except CorruptBatch as error:
        problem = error.message
    if rewrite and problem is None:
        segment.file.truncate(segment.size)
    segment.save_indexes()
    if (index := segment.txn_index.file) is not None:
        # It may have been written again below the recovery point, where no flush syncs it.
        index.sync()
    return problem


# What to do about a damaged log of a partition. The metadata log has other advice.
REFETCH = (
    "Remove the partition's directory to fetch it from its other replicas, or restore it from a "
    "copy"
)


def _check_recovery_point(recovery_point: int, end_offset: int, path: str, problem: str) -> None:
    if end_offset < recovery_point:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{path} is damaged: {problem}. Everything below offset {recovery_point} was synced, "
            f"so this is not a torn tail, and the log is not truncated. {REFETCH}",
        )


def _truncate(disk: Disk, segment: Segment, problem: str) -> list[str]:
    size = disk.size(segment.path)
    note = f"{segment.path}: truncated from {size} to {segment.size} bytes: {problem}"
    segment.file.truncate(segment.size)
    segment.file.sync()
    return [note]


def _remove(disk: Disk, directory: str, segments: list[Segment]) -> list[str]:
    """Remove segments, the last one first: a crash in between leaves no hole."""
    notes = []
    for segment in reversed(segments):
        notes.append(
            f"{segment.path}: removed {disk.size(segment.path)} bytes, because the log now ends "
            "before it"
        )
        for path in segment.paths:
            if disk.exists(path):
                disk.remove(path)
    disk.sync_dir(directory)
    return notes


def rebuild_indexes(
    disk: Disk, directory: str, base_offset: int, index_interval_bytes: int
) -> None:
    """Rebuild the indexes of a sealed segment from its headers. The indexes end at a damaged
    header; readers find the damage themselves."""
    segment = Segment(OpenFiles(disk), directory, base_offset, active=True, created_ms=0, size=0)
    segment.reset_offset_and_time_indexes()
    end_offset = base_offset
    with contextlib.suppress(CorruptBatch):
        for _position, header in scan_headers(segment.file, 0, segment.file.size()):
            if (
                not end_offset
                <= header.base_offset
                <= header.last_offset
                <= base_offset + MAX_RELATIVE_OFFSET
            ):
                break
            segment.note(header, index_interval_bytes)
            end_offset = header.next_offset
    segment.save_indexes()


def _log_size(disk: Disk, directory: str, base_offset: int) -> int:
    return disk.size(f"{directory}/{names.segment_file(base_offset, names.LOG)}")


def _saved_epochs(disk: Disk, directory: str) -> list[EpochStart]:
    """Return the checkpointed leader epochs. A damaged checkpoint counts as empty: recovered
    batches have their epochs, and the leader knows the others."""
    path = f"{directory}/{names.LEADER_EPOCHS}"
    try:
        return parse_epochs(disk.read(path)) if disk.exists(path) else []
    except CheckpointDamaged:
        return []


def _remove_snapshots_after(disk: Disk, directory: str, offset: int) -> None:
    """Remove producer snapshots past the recovery point: they may include batches that are about to
    be truncated. The removal is synced. Otherwise a power failure could bring a snapshot back,
    which would then be taken for one of the batches written since."""
    stale = [snapshot for snapshot in snapshot_offsets(disk, directory) if snapshot > offset]
    for snapshot in stale:
        disk.remove(snapshot_path(directory, snapshot))
    if stale:
        disk.sync_dir(directory)
