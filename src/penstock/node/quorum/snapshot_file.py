"""The bytes of a metadata snapshot, in Kafka's format (KIP-630): a header record, the records of
the image in batches, a footer record.

Every batch has a CRC. The footer shows that a file is complete. The functions that read a file
block: call them through `Offload.thread`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import Buffer
from penstock.limits import BATCH_HEADER_BYTES, METADATA_FETCH_BYTES
from penstock.metadata.image import MetadataImage
from penstock.node.quorum.voter_records import (
    control_values,
    entry_of_snapshot,
    voter_control_records,
)
from penstock.protocol.internal.control_records import (
    ControlType,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    encode_control_key,
    encode_control_value,
)
from penstock.protocol.internal.metadata_records import encode_record
from penstock.raft.voters import RECONFIGURATION_LEVEL, VotersEntry, VoterSet
from penstock.records.batch import MAGIC, BatchHeader, crc_matches, read_header
from penstock.records.build import NewRecord, build_batch
from penstock.records.record import ControlRecord, control_kind, records_of
from penstock.world import File

# Records per batch, if they are small. Building a batch takes a few milliseconds; the event loop
# runs in between.
_BATCH_RECORDS = 500


class SnapshotDamaged(KafkaError):
    """A snapshot is not what was written: a batch has a wrong CRC, or a part is missing."""


def _damaged(path: str, problem: str) -> SnapshotDamaged:
    return SnapshotDamaged(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is damaged: {problem}")


# Writing


def snapshot_batches(
    image: MetadataImage, epoch: int, timestamp: int, voters: VotersEntry | None = None
) -> Iterator[tuple[bytes, int]]:
    """Yield the batches of a snapshot, each with its number of records. The first one has the
    voters, if they are in the log."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=timestamp)
    records = [_control(ControlType.SNAPSHOT_HEADER, header, timestamp)]
    if voters is not None and voters.kraft_version >= RECONFIGURATION_LEVEL:
        records += voter_control_records(voters.voters, voters.kraft_version, timestamp)
    yield build_batch(records, control=True, leader_epoch=epoch), len(records)
    for chunk in _chunks(image, timestamp):
        yield build_batch(chunk, leader_epoch=epoch), len(chunk)
    footer = _control(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), timestamp)
    yield build_batch([footer], control=True, leader_epoch=epoch), 1


def bootstrap_checkpoint(voters: VoterSet, timestamp: int) -> bytes:
    """Return the snapshot at offset 0 that has the first voters of a new quorum."""
    content, offset = b"", 0
    entry = VotersEntry(-1, RECONFIGURATION_LEVEL, voters)
    for batch, count in snapshot_batches(MetadataImage.empty(), 0, timestamp, entry):
        content, offset = content + at_offset(batch, offset), offset + count
    return content


def at_offset(batch: bytes, offset: int) -> bytes:
    """Return the batch with another base offset, which its CRC does not cover."""
    return offset.to_bytes(8, "big") + batch[8:]


def _chunks(image: MetadataImage, timestamp: int) -> Iterator[list[NewRecord]]:
    chunk: list[NewRecord] = []
    size = 0
    for record in image.records():
        value = encode_record(record)
        chunk.append(NewRecord(None, value, (), timestamp))
        size += len(value)
        if len(chunk) == _BATCH_RECORDS or size >= METADATA_FETCH_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _control(kind: ControlType, value: object, timestamp: int) -> NewRecord:
    return NewRecord(encode_control_key(kind), encode_control_value(value), (), timestamp)


# Voters


def snapshot_voters(file: File, offset: int) -> VotersEntry | None:
    """Return the voters of a snapshot, which its first batch has; None if it has none. `offset` is
    that of its last record. Raises SnapshotDamaged."""
    path, size = file.path, file.size()
    header = _header(path, file.pread(BATCH_HEADER_BYTES, 0), 0, size)
    data = file.pread(header.size, 0)
    _check_crc(path, data, header, 0)
    _check_kind(path, data, header, ControlRecord.SNAPSHOT_HEADER)
    return entry_of_snapshot(offset, [value for _at, value in control_values(data, header)])


# Checking


def check_snapshot(file: File) -> list[int]:
    """Read a whole snapshot and return the positions of its batches, and its size at the end.

    Raises SnapshotDamaged.
    """
    path, size, positions = file.path, file.size(), [0]
    if size == 0:
        raise _damaged(path, "it is empty")
    while (position := positions[-1]) < size:
        header = _header(path, file.pread(BATCH_HEADER_BYTES, position), position, size)
        data = file.pread(header.size, position)
        _check_crc(path, data, header, position)
        if position == 0:
            _check_kind(path, data, header, ControlRecord.SNAPSHOT_HEADER)
        positions.append(position + header.size)
    _check_kind(path, data, header, ControlRecord.SNAPSHOT_FOOTER)
    return positions


def read_checked(file: File, positions: list[int], start: int, length: int) -> bytes:
    """Return up to `length` bytes from `start` on, after checking the batches that have them.

    `positions` is the result of `check_snapshot`. Raises SnapshotDamaged.
    """
    end = min(start + length, positions[-1])
    first = positions[bisect_right(positions, start) - 1]
    last = positions[bisect_left(positions, end)]
    data = file.pread(last - first, first)
    if len(data) < last - first:
        raise _damaged(file.path, f"it ends before position {last}")
    for _batch in checked_batches(file.path, data, first):
        pass
    return data[start - first : end - first]


def checked_batches(path: str, data: bytes, base: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch in `data`, the bytes of a snapshot at position
    `base`. Raises SnapshotDamaged."""
    position = 0
    while position < len(data):
        head = data[position : position + BATCH_HEADER_BYTES]
        header = _header(path, head, base + position, base + len(data))
        _check_crc(path, memoryview(data)[position:], header, base + position)
        yield position, header
        position += header.size


def _header(path: str, data: bytes, position: int, size: int) -> BatchHeader:
    if len(data) == BATCH_HEADER_BYTES:
        header = read_header(data)
        if header.magic == MAGIC and BATCH_HEADER_BYTES <= header.size <= size - position:
            return header
    raise _damaged(path, f"there is no whole batch at position {position}")


def _check_crc(path: str, data: Buffer, header: BatchHeader, position: int) -> None:
    if len(data) < header.size or not crc_matches(data, 0, header):
        raise _damaged(path, f"the batch at position {position} has a wrong CRC")


def _check_kind(path: str, data: bytes, header: BatchHeader, kind: ControlRecord) -> None:
    """Check that the first batch has the snapshot's header, or the last one its footer."""
    records = records_of(data, header) if header.is_control else ()
    if kind not in [control_kind(record.key) for record in records]:
        raise _damaged(path, f"it has no {kind.name.lower().replace('_', ' ')}")
