"""Compaction in the child process: reads sealed segments, and writes what stays of them beside
them, as `.cleaned` files.

The event loop requests one slice at a time (`advance`), so that other work gets its turn in the
child process, and swaps in each group of segments when it is done (`swap`). Nothing here renames or
removes files in service: a crash leaves `.cleaned` files, which the next start removes.

Memory: the map of keys (bounded by log.cleaner.dedupe.buffer.size), a piece of a segment, and one
opened batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.ids import Buffer
from penstock.limits import COMPACTION_SLICE_BYTES
from penstock.log import names
from penstock.log.compaction.cleanable import SegmentExtent, grouped
from penstock.log.compaction.filter import LastOffsets, LastOfProducer, Survivors, TransactionsSeen
from penstock.log.files import OpenFiles
from penstock.log.index import AbortedTxn
from penstock.log.recovery import scan_batches
from penstock.log.segment import Segment
from penstock.records.batch import BatchHeader, read_header
from penstock.records.record import open_batch
from penstock.world import Disk

_WRITE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Job:
    """One compaction of a log: everything that the child process needs, as plain values."""

    id: str
    directory: str
    segments: tuple[SegmentExtent, ...]
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    aborted: tuple[AbortedTxn, ...] = ()
    producers: Mapping[int, LastOfProducer] = field(default_factory=dict)


class Cleaned(NamedTuple):
    """Segments that became one: their base offsets, the size of the `.cleaned` log of the first,
    and the number of records before and after."""

    bases: tuple[int, ...]
    end_offset: int
    size: int
    records_before: int
    records_after: int


class Slice(NamedTuple):
    """The result of one slice. The clean offset is set when the compaction is done: below it every
    key has one record."""

    processed_bytes: int
    cleaned: list[Cleaned]
    clean_offset: int | None


class _Running(NamedTuple):
    last: LastOffsets
    steps: Iterator[int | Cleaned]


# The compactions of this process, between two slices.
_running: dict[str, _Running] = {}


class JobLost(Exception):
    """The child process that had begun the compaction is gone, with its map of keys."""


def advance(disk: Disk, job: Job | str) -> Slice:
    """Run the next slice: pass the job to begin, its id to continue."""
    if isinstance(job, Job):
        last = LastOffsets(job.map_bytes)
        _running[job.id] = _Running(last, _compact(disk, job, last))
        job = job.id
    work = _running.get(job)
    if work is None:
        raise JobLost("the child process was restarted during a compaction, which starts again")
    cleaned: list[Cleaned] = []
    processed = 0
    try:
        for step in work.steps:
            if isinstance(step, Cleaned):
                cleaned.append(step)
            else:
                processed += step
            if processed >= COMPACTION_SLICE_BYTES:
                return Slice(processed, cleaned, None)
    except BaseException:
        del _running[job]
        raise
    del _running[job]
    return Slice(processed, cleaned, work.last.latest + 1)


def abandon(_disk: Disk, job_id: str) -> None:
    """Drop a compaction that the event loop does not continue."""
    _running.pop(job_id, None)


def _compact(disk: Disk, job: Job, last: LastOffsets) -> Iterator[int | Cleaned]:
    """Yield the bytes of each step, and each group when it is done. Groups are done in order: a
    later group drops the tombstone of a key only because an earlier one dropped its records."""
    yield from _map_keys(disk, job, last)
    transactions = TransactionsSeen(job.aborted)
    survivors = Survivors(last, transactions, job.producers, job.now_ms, job.delete_retention_ms)
    dirty = [segment for segment in job.segments if segment.base_offset <= last.latest]
    for group in grouped(dirty, job.segment_bytes, job.segment_index_bytes):
        yield from _clean_group(disk, job, group, survivors, transactions)


def _map_keys(disk: Disk, job: Job, last: LastOffsets) -> Iterator[int]:
    dirty = [segment for segment in job.segments if segment.end_offset > job.first_dirty_offset]
    # Without transactions that ended before the scan begins: it does not see their markers, and
    # would take the producer's next transaction for aborted.
    start = dirty[0].base_offset if dirty else job.first_dirty_offset
    transactions = TransactionsSeen(txn for txn in job.aborted if txn.last_offset >= start)
    for segment in dirty:
        for _position, header, batch in _batches(disk, job.directory, segment):
            if last.is_full:
                return
            if header.is_control:
                transactions.is_marker_idle(header, batch)
            elif (
                not transactions.is_aborted(header) and header.last_offset >= job.first_dirty_offset
            ):
                last.add(header, open_batch(batch, header), job.first_dirty_offset)
            last.latest = header.last_offset
            yield header.size
        last.latest = segment.end_offset - 1


def _clean_group(
    disk: Disk,
    job: Job,
    group: list[SegmentExtent],
    survivors: Survivors,
    transactions: TransactionsSeen,
) -> Iterator[int | Cleaned]:
    target = _Target(disk, job, group[0].base_offset)
    last_filled = max((number for number, segment in enumerate(group) if segment.size), default=0)
    before = 0
    for number, segment in enumerate(group):
        for position, header, batch in _batches(disk, job.directory, segment):
            # The last batch stays: it shows where the group ends when a swap is finished after a
            # crash.
            is_last = number == last_filled and position + header.size == segment.size
            kept = survivors.of(header, batch, keep_empty=is_last)
            before += header.record_count
            yield header.size + (0 if kept is None else target.add(kept))
    aborted, transactions.still_present = transactions.still_present, []
    target.finish(aborted)
    yield Cleaned(
        tuple(segment.base_offset for segment in group),
        group[-1].end_offset,
        target.size,
        before,
        target.records,
    )


def _batches(
    disk: Disk, directory: str, segment: SegmentExtent
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    file = disk.open(f"{directory}/{names.segment_file(segment.base_offset, names.LOG)}")
    try:
        yield from scan_batches(file, segment.size)
    finally:
        file.close()


class _Target:
    """The `.cleaned` files of a group. Files that an earlier attempt left are overwritten."""

    def __init__(self, disk: Disk, job: Job, base_offset: int) -> None:
        self.records = 0
        self._interval = job.index_interval_bytes
        self._files = OpenFiles(disk)
        self._segment = Segment(
            self._files, job.directory, base_offset, active=True, created_ms=0, size=0
        )
        self._segment.relocate(job.directory, names.CLEANED)
        for path in self._segment.paths:
            if disk.exists(path):
                disk.remove(path)
        self._segment.reset_indexes()
        self._pending: list[Buffer] = []
        self._headers: list[BatchHeader] = []
        self._pending_bytes = 0

    @property
    def size(self) -> int:
        return self._segment.size

    def add(self, batch: Buffer) -> int:
        header = read_header(batch)
        self.records += header.record_count
        self._pending.append(batch)
        self._headers.append(header)
        self._pending_bytes += header.size
        if self._pending_bytes >= _WRITE_BYTES:
            self._write()
        return header.size

    def _write(self) -> None:
        self._segment.append(b"".join(self._pending), self._headers, self._interval)
        self._pending, self._headers, self._pending_bytes = [], [], 0

    def finish(self, aborted: list[AbortedTxn]) -> None:
        """Write and sync everything. The transaction index exists even if it is empty: its absence
        during a swap means that it was renamed already."""
        self._write()
        segment = self._segment
        segment.save_indexes()
        self._files.get(segment.txn_index.path, create=True)
        for txn in aborted:
            segment.txn_index.append(txn)
        for path in segment.paths:
            self._files.get(path, create=True).sync()
