"""The producer state of a log on disk: snapshots, and the batches after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from penstock.errors import KafkaError
from penstock.ids import Buffer
from penstock.limits import REPLAYED_BYTES_PER_STEP, REPLAYED_PER_STEP
from penstock.log import names
from penstock.log.files import FileRange, OpenFiles
from penstock.log.index import AbortedTxn
from penstock.log.producers.snapshot import SnapshotDamaged, decode_snapshot, encode_snapshot
from penstock.log.producers.state import EndMarker, Producer, ProducerStates
from penstock.log.scanning import scan_headers
from penstock.log.segment import Segment
from penstock.records.batch import BatchHeader
from penstock.records.record import ControlRecord, control_kind, coordinator_epoch, records_of
from penstock.world import Disk


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{names.segment_file(offset, names.SNAPSHOT)}"


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    parsed = (names.parse_segment_file(name) for name in disk.list(directory))
    return sorted(found[0] for found in parsed if found is not None and found[1] == names.SNAPSHOT)


def remove_snapshots(disk: Disk, directory: str, above: int = -1) -> None:
    for offset in snapshot_offsets(disk, directory):
        if offset > above:
            disk.remove(snapshot_path(directory, offset))


def save_snapshot(files: OpenFiles, directory: str, offset: int, producers: ProducerStates) -> str:
    """Write a snapshot and return its path. It is not synced: its checksum shows whether it
    survived a crash, and the log has everything that is in it."""
    path = snapshot_path(directory, offset)
    data = encode_snapshot(producers.producers)
    file = files.get(path, create=True)
    file.pwrite(data, 0)
    file.truncate(len(data))
    files.forget(path)
    return path


def load_producers(
    disk: Disk,
    directory: str,
    segments: Sequence[Segment],
    end_offset: int,
    notes: list[str],
    *,
    snapshot_up_to: int | None = None,
) -> ProducerStates:
    """Return the producer state at an offset: that of the newest valid snapshot up to the offset,
    or up to an earlier one, and of the batches from there on."""
    producers = ProducerStates()
    for _part in load_steps(
        producers, disk, directory, segments, end_offset, notes, snapshot_up_to
    ):
        pass
    return producers


def with_unreplicated(
    producers: ProducerStates,
    disk: Disk,
    directory: str,
    segments: Sequence[Segment],
    end_offset: int,
    high_watermark: int,
) -> ProducerStates:
    """Return the producer state at the log's end, with the transactions whose marker is not below
    the high watermark: the marker may still be lost, so they hold back the last stable offset.

    A snapshot has open transactions only. One that was written after such a marker, when a segment
    was rolled, does not show them. Then the state is read from an earlier snapshot.
    """
    if producers.snapshot_offset <= high_watermark:
        return producers
    try:
        if not _has_marker(segments, high_watermark, producers.snapshot_offset):
            return producers
        return load_producers(
            disk, directory, segments, end_offset, [], snapshot_up_to=high_watermark
        )
    except KafkaError:
        return producers  # a segment is damaged, which its readers report


def _has_marker(segments: Sequence[Segment], start_offset: int, end_offset: int) -> bool:
    """Return True if there is a transaction marker between two offsets."""
    return any(
        header.is_control and header.is_transactional and header.base_offset >= start_offset
        for part in _parts_to_replay(segments, start_offset, end_offset)
        for _position, header in scan_headers(part.file, part.position, part.position + part.length)
    )


def load_steps(
    producers: ProducerStates,
    disk: Disk,
    directory: str,
    segments: Sequence[Segment],
    end_offset: int,
    notes: list[str],
    snapshot_up_to: int | None = None,
) -> Iterator[FileRange | None]:
    """Load the producer state at an offset in steps that take about a millisecond. Yield before
    each step the range of a file that it reads, if any. Segments may be removed between steps."""
    snapshot, offset = _newest_snapshot(
        disk, directory, end_offset if snapshot_up_to is None else snapshot_up_to, notes
    )
    producers.snapshot_offset = producers.end_offset = offset
    parts = _parts_to_replay(segments, producers.end_offset, end_offset)
    while some := list(islice(snapshot, REPLAYED_PER_STEP)):
        producers.restore(some)
        yield None
    for part in parts:
        yield from _replay(part, producers, end_offset)
    producers.end_offset = end_offset


def _newest_snapshot(
    disk: Disk, directory: str, end_offset: int, notes: list[str]
) -> tuple[Iterator[tuple[int, Producer]], int]:
    """Return the producers of the newest valid snapshot up to an offset, and its offset."""
    for offset in reversed(snapshot_offsets(disk, directory)):
        if offset <= end_offset:
            path = snapshot_path(directory, offset)
            try:
                return decode_snapshot(disk.read(path)), offset
            except SnapshotDamaged as error:
                notes.append(
                    f"{path}: ignored: {error}; reading an earlier snapshot and the log instead"
                )
    return iter(()), 0


def _parts_to_replay(
    segments: Sequence[Segment], start_offset: int, end_offset: int
) -> list[FileRange]:
    """Return the part of each segment that has batches between two offsets. The files are open: a
    segment that is removed later can still be read."""
    parts = []
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if following > start_offset and segment.base_offset < end_offset:
            found = segment.find(max(start_offset, segment.base_offset))
            if found is not None:
                parts.append(segment.range(found[0], segment.size - found[0]))
    return parts


def _replay(part: FileRange, producers: ProducerStates, end_offset: int) -> Iterator[FileRange]:
    file, end = part.file, part.position + part.length
    count, step_at = 0, part.position
    yield FileRange(file, step_at, min(REPLAYED_BYTES_PER_STEP, part.length))
    for position, header in scan_headers(file, part.position, end):
        if header.base_offset >= end_offset:
            return
        if header.base_offset >= producers.end_offset:
            producers.apply(
                header,
                end_marker(header, file.pread(header.size, position))
                if header.is_control
                else None,
            )
        count += 1
        following = position + header.size
        if (
            count >= REPLAYED_PER_STEP or following - step_at >= REPLAYED_BYTES_PER_STEP
        ) and following < end:
            yield FileRange(file, following, min(REPLAYED_BYTES_PER_STEP, end - following))
            count, step_at = 0, following


def apply_batch(
    producers: ProducerStates, header: BatchHeader, marker: EndMarker | None, segment: Segment
) -> None:
    """Apply a batch of a segment; an aborted transaction is added to the segment's transaction
    index."""
    completed = producers.apply(header, marker)
    if completed is not None and completed.aborted:
        stable = producers.stable_end_after(completed)
        segment.txn_index.append(
            AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)
        )


def end_markers(headers: list[BatchHeader], records: Buffer) -> list[EndMarker | None]:
    """Return the transaction marker of each batch. Raises KafkaError for a malformed control batch:
    call it before the batches are written."""
    position, markers = 0, []
    for header in headers:
        markers.append(
            end_marker(header, memoryview(records)[position : position + header.size])
            if header.is_control
            else None
        )
        position += header.size
    return markers


def end_marker(header: BatchHeader, batch: Buffer) -> EndMarker | None:
    """Return the transaction marker in a control batch; None for other types (leader changes,
    snapshots). Raises KafkaError if it is malformed."""
    record = next(records_of(batch, header), None)
    kind = ControlRecord.UNKNOWN if record is None else control_kind(record.key)
    if record is None or kind not in (ControlRecord.ABORT, ControlRecord.COMMIT):
        return None
    return EndMarker(kind == ControlRecord.COMMIT, coordinator_epoch(record.value))
