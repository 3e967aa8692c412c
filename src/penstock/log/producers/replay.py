"""The producer state of a log on disk: snapshots, and the batches after them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.ids import Buffer
from penstock.log import names
from penstock.log.files import OpenFiles
from penstock.log.index import AbortedTxn, TxnIndex
from penstock.log.producers.snapshot import SnapshotDamaged, decode_snapshot, encode_snapshot
from penstock.log.producers.state import EndMarker, ProducerStates
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
    disk: Disk, directory: str, segments: Sequence[Segment], end_offset: int, notes: list[str]
) -> ProducerStates:
    """Load the newest valid snapshot up to an offset, and apply the batches from there to the
    offset."""
    producers = ProducerStates()
    for offset in reversed(snapshot_offsets(disk, directory)):
        if offset <= end_offset:
            try:
                producers.restore(
                    decode_snapshot(disk.read(snapshot_path(directory, offset))), offset
                )
                break
            except SnapshotDamaged as error:
                notes.append(
                    f"{snapshot_path(directory, offset)}: ignored: {error}; reading an earlier "
                    "snapshot and the log instead"
                )
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if following > producers.end_offset and segment.base_offset < end_offset:
            _replay(segment, producers, end_offset)
    producers.end_offset = end_offset
    return producers


def _replay(segment: Segment, producers: ProducerStates, end_offset: int) -> None:
    found = segment.find(max(producers.end_offset, segment.base_offset))
    if found is None:
        return
    file = segment.file
    for position, header in scan_headers(file, found[0], segment.size):
        if header.base_offset >= end_offset:
            return
        if header.base_offset >= producers.end_offset:
            producers.apply(
                header,
                end_marker(header, file.pread(header.size, position))
                if header.is_control
                else None,
            )


def apply_batch(
    producers: ProducerStates, header: BatchHeader, marker: EndMarker | None, txn_index: TxnIndex
) -> None:
    """Apply a batch that is in the log; an aborted transaction is added to the segment's
    transaction index."""
    completed = producers.apply(header, marker)
    if completed is not None and completed.aborted:
        stable = producers.stable_end_after(completed)
        txn_index.append(
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
