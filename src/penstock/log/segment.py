"""One segment: a file of batches and its indexes.

Owns positions. Knows nothing of high watermarks, retention or other segments.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from penstock.errors import ErrorCode, KafkaError, NotInMemory
from penstock.ids import Buffer
from penstock.limits import (
    BATCH_HEADER_BYTES,
    MAX_RELATIVE_OFFSET,
    REMEMBERED_READ_ENDS,
    REMEMBERED_TAIL_BATCHES,
)
from penstock.log import names
from penstock.log.files import FileRange, OpenFiles
from penstock.log.index import OffsetIndex, TimeIndex, TimestampOffset, TxnIndex
from penstock.records.batch import MAGIC, BatchHeader, CorruptBatch, read_header
from penstock.world import Disk, File

# Headers are read in pieces of this size: as much as lies between two entries of the offset index
# by default.
_READ_AHEAD_BYTES = 4096


_Read = Callable[[int, int], Buffer]


def scan_headers(
    file: File, position: int, end: int, read: _Read | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch from a position on, without reading what is behind the
    headers."""
    read = read or file.pread
    ahead: Buffer = b""
    ahead_at = position
    while position < end:
        at = position - ahead_at
        if at + BATCH_HEADER_BYTES > len(ahead):
            ahead, ahead_at, at = (
                read(min(_READ_AHEAD_BYTES, end - position), position),
                position,
                0,
            )
        header = read_header(ahead, at)
        if (
            header.magic != MAGIC
            or header.size < BATCH_HEADER_BYTES
            or position + header.size > end
        ):
            raise CorruptBatch(
                f"{file.path}: no batch at position {position} (magic {header.magic}, size "
                f"{header.size}, {end - position} left)"
            )
        yield position, header
        position += header.size


class Segment:
    """The batches from `base_offset` on, up to the next segment."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        *,
        active: bool,
        created_ms: int,
        size: int,
    ) -> None:
        def path(suffix: str) -> str:
            return f"{directory}/{names.segment_file(base_offset, suffix)}"

        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size = size
        # Up to where it was begun to be written out.
        self.written_back = size
        self.path = path(names.LOG)
        self.offset_index = OffsetIndex(files, path(names.OFFSET_INDEX), base_offset, active=active)
        self.time_index = TimeIndex(files, path(names.TIME_INDEX), base_offset, active=active)
        self.txn_index = TxnIndex(files, path(names.TXN_INDEX))
        self._files = files
        self._since_index_entry = 0
        self._max_timestamp: TimestampOffset | None = None
        self._first_timestamp: int | None = None
        # The last batches that were appended, and their positions: readers that keep up find theirs
        # without a look into the file.
        self._tail: deque[tuple[int, BatchHeader]] = deque(maxlen=REMEMBERED_TAIL_BATCHES)
        # The batches at which the last reads ended, by their base offset: a sequential reader
        # continues there. Positions are valid until the segment is truncated; compaction replaces
        # the segment.
        self._read_ends: dict[int, tuple[int, BatchHeader]] = {}

    @property
    def file(self) -> File:
        return self._files.get(self.path, create=True)

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, self.offset_index.path, self.time_index.path, self.txn_index.path)

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp in here, and the last offset of the first batch that has it."""
        if self._max_timestamp is None:
            last = self.time_index.last()
            self._max_timestamp = (
                last
                if self._is_true(last)
                else self._largest_timestamp(TimestampOffset(-1, self.base_offset), 0)
            )
        return self._max_timestamp

    def largest_time(self) -> int:
        """How old the segment is. One whose records have no time is as old as its file."""
        largest = self.max_timestamp.timestamp
        return largest if largest >= 0 else self.created_ms

    @property
    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first batch: from it the age of the segment is reckoned when
        it is time to roll."""
        if self._first_timestamp is None and self.size:
            self._first_timestamp = read_header(
                self.file.pread(BATCH_HEADER_BYTES, 0)
            ).max_timestamp
        return self._first_timestamp

    def append(self, data: Buffer, headers: list[BatchHeader], index_interval_bytes: int) -> None:
        """Writes whole batches at the end. If the write fails nothing is noted: what it left behind
        is not part of the log."""
        self.file.pwrite(data, self.size)
        for header in headers:
            self.note(header, index_interval_bytes)

    def note(self, header: BatchHeader, index_interval_bytes: int) -> None:
        """Takes a batch that lies at the end of the file into the segment and its indexes."""
        size, timestamp, last_offset = header.size, header.max_timestamp, header.last_offset
        largest = self._max_timestamp or self.max_timestamp
        if timestamp > largest.timestamp:
            largest = self._max_timestamp = TimestampOffset(timestamp, last_offset)
        if self._since_index_entry > index_interval_bytes:
            self.offset_index.append(last_offset, self.size)
            self.time_index.append(largest.timestamp, largest.offset)
            self._since_index_entry = 0
        if self.size == 0:
            self._first_timestamp = timestamp
        self._tail.append((self.size, header))
        self.size += size
        self._since_index_entry += size

    def find(self, offset: int, *, at_once: bool = False) -> tuple[int, BatchHeader] | None:
        """The first batch that ends at or after this offset; None where the segment ends before it.
        NotInMemory where it was to be found at once, and cannot."""
        remembered = self._find_in_tail(offset) or self._read_ends.get(offset)
        if remembered is not None:
            return remembered
        if at_once and not self.offset_index.is_at_hand:
            raise self._not_in_memory(offset, None)
        position = self.offset_index.lookup(offset)
        try:
            return self._scan_for(offset, position, at_once=at_once)
        except CorruptBatch as error:
            if position == 0:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"segment damaged: {error.message}"
                ) from error
        # Either the index points between batches or the segment is damaged: reading from its start
        # tells which.
        try:
            return self._scan_for(offset, 0)
        except CorruptBatch as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"segment damaged: {error.message}"
            ) from error

    def _find_in_tail(self, offset: int) -> tuple[int, BatchHeader] | None:
        if not self._tail or offset < self._tail[0][1].base_offset:
            return None
        found = None
        for batch in reversed(self._tail):
            if batch[1].last_offset < offset:
                break
            found = batch
        return found

    def last_batch_end(self, position: int, first: BatchHeader, limit: int) -> int:
        """Return the end of the last batch that ends at or before a limit, so that no part of a
        batch is sent. `first` is the batch at `position`, and ends there or before.

        The index leads to the last batches, and only their headers are read. If they are not in
        memory, return the limit: a client discards the part of a batch, which is cheaper than to
        wait for the disk.
        """
        index = self.offset_index
        if not index.is_at_hand:
            return limit
        at, entry = position + first.size, index.at_position(limit)
        if entry is not None and entry.position > at:
            at = entry.position
        else:
            entry = None
        headers: Buffer = b""
        headers_at = at
        while at < limit:
            if at - headers_at + BATCH_HEADER_BYTES > len(headers):
                length = min(_READ_AHEAD_BYTES, self.size - at)
                read = self.file.pread_at_once(length, at)
                if read is None or length < BATCH_HEADER_BYTES:
                    return limit
                headers, headers_at = read, at
            header = read_header(headers, at - headers_at)
            if (
                header.magic != MAGIC
                or header.size < BATCH_HEADER_BYTES
                or (entry is not None and header.last_offset != entry.offset)
            ):
                return limit
            entry = None
            if at + header.size > limit:
                self._remember_read_end(at, header)
                return at
            at += header.size
        return at

    def _remember_read_end(self, position: int, header: BatchHeader) -> None:
        ends = self._read_ends
        ends.pop(header.base_offset, None)
        ends[header.base_offset] = (position, header)
        if len(ends) > REMEMBERED_READ_ENDS:
            del ends[next(iter(ends))]

    def _scan_for(
        self, offset: int, start: int, *, at_once: bool = False
    ) -> tuple[int, BatchHeader] | None:
        if start and not 0 < start < self.size:
            raise CorruptBatch(
                f"{self.path}: the index sends offset {offset} to position {start}, outside of "
                f"its {self.size} bytes"
            )
        file = self.file

        def read_at_once(length: int, position: int) -> Buffer:
            data = file.pread_at_once(length, position)
            if data is None:
                raise self._not_in_memory(offset, start)
            return data

        previous = self.base_offset - 1
        for position, header in scan_headers(
            file, start, self.size, read_at_once if at_once else None
        ):
            if header.base_offset <= previous or header.last_offset_delta < 0:
                raise CorruptBatch(
                    f"{self.path}: offset {header.base_offset} at position {position} does not "
                    f"follow {previous}"
                )
            if position == start and start and header.base_offset > offset:
                raise CorruptBatch(
                    f"{self.path}: the index sends offset {offset} to a batch that begins at "
                    f"{header.base_offset}"
                )
            previous = header.last_offset
            if previous >= offset:
                return position, header
        return None

    def _not_in_memory(self, offset: int, start: int | None) -> NotInMemory:
        return NotInMemory(
            partial(
                _warm,
                self._files.disk,
                self.path,
                self.offset_index.path,
                self.base_offset,
                self.size,
                offset,
                start,
            )
        )

    def end_offset(self) -> int:
        """The offset after the last batch. CorruptBatch where the segment does not end with a whole
        batch."""
        end = self.base_offset
        for _position, header in scan_headers(self.file, self._last_indexed(), self.size):
            end = header.next_offset
        return end

    def _last_indexed(self) -> int:
        """The position of the last batch that the index knows, if it is there; the start of the
        segment if not."""
        if not len(self.offset_index):
            return 0
        entry = self.offset_index[len(self.offset_index) - 1]
        if not 0 <= entry.position <= self.size - BATCH_HEADER_BYTES:
            return 0
        header = read_header(self.file.pread(BATCH_HEADER_BYTES, entry.position))
        return entry.position if header.magic == MAGIC and header.last_offset == entry.offset else 0

    def find_timestamp(self, timestamp: int, from_offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch, not before an offset, with a record of this time or later."""
        if self.max_timestamp.timestamp < timestamp:
            return None
        entry = self.time_index.lookup(timestamp)
        start = self.find(
            max(entry.offset if self._is_true(entry) else self.base_offset, from_offset)
        )
        if start is None:
            return None
        for position, header in scan_headers(self.file, start[0], self.size):
            if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
                return position, header
        return None

    def _is_true(self, entry: TimestampOffset) -> bool:
        """Whether the batch that an entry of the time index tells of is there: the index has no
        checksum of its own."""
        if entry.timestamp < 0 or not self.size:
            return True
        found = self.find(entry.offset)
        return (
            found is not None
            and found[1].last_offset == entry.offset
            and found[1].max_timestamp == entry.timestamp
        )

    def range(self, position: int, length: int) -> FileRange:
        return FileRange(self.file, position, length)

    def is_full_for(
        self, size: int, last_offset: int, segment_bytes: int, index_bytes: int
    ) -> bool:
        """Whether batches of this size, up to this offset, need a new segment."""
        return (
            self.size + size > segment_bytes
            or self.offset_index.size + OffsetIndex.entry.size > index_bytes
            or self.time_index.size + 2 * TimeIndex.entry.size > index_bytes
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        )

    def age_ms(self, timestamp: int, now_ms: int) -> int:
        """How long the segment has taken records: by their time where they have one, else by the
        clock."""
        first = self.first_timestamp
        return (
            now_ms - self.created_ms
            if first is None or first < 0 or timestamp < 0
            else timestamp - first
        )

    def truncate(self, offset: int) -> None:
        """Cuts the batch that holds this offset and all after it."""
        found = self.find(offset)
        if found is not None:
            self.size = found[0]
        self.written_back = min(self.written_back, self.size)
        self.file.truncate(self.size)
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self.txn_index.truncate(offset)
        self._first_timestamp = None
        self._tail.clear()
        self._read_ends.clear()
        self._since_index_entry = 0
        self._max_timestamp = self._largest_timestamp(self.time_index.last(), self._last_indexed())

    def _largest_timestamp(self, largest: TimestampOffset, start: int) -> TimestampOffset:
        """The one given, or a larger one in the headers from a position on."""
        for _position, header in scan_headers(self.file, start, self.size):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    def save_indexes(self) -> None:
        self._index_largest_timestamp()
        self.offset_index.save()
        self.time_index.save()

    def seal(self) -> None:
        """No more appends."""
        self._tail.clear()
        self._index_largest_timestamp()
        self.offset_index.seal()
        self.time_index.seal()

    def _index_largest_timestamp(self) -> None:
        """As the last entry, so that it is known without a scan when the segment is opened
        again."""
        if self.max_timestamp.timestamp >= 0:
            self.time_index.append(*self.max_timestamp)

    def reset_indexes(self) -> None:
        """The indexes are about to be rebuilt from the file."""
        self.reset_offset_and_time_indexes()
        self.txn_index.truncate(0)

    def reset_offset_and_time_indexes(self) -> None:
        self._tail.clear()
        self._read_ends.clear()
        self.offset_index.reset()
        self.time_index.reset()

    def relocate(self, directory: str, suffix: str = "") -> None:
        """The files lie in another directory, or have names that end differently, from here on."""
        for part, kind in (
            (self, names.LOG),
            (self.offset_index, names.OFFSET_INDEX),
            (self.time_index, names.TIME_INDEX),
            (self.txn_index, names.TXN_INDEX),
        ):
            part.path = f"{directory}/{names.segment_file(self.base_offset, kind)}{suffix}"

    def activate(self) -> None:
        self.offset_index.activate()
        self.time_index.activate()


def new_segment(files: OpenFiles, directory: str, base_offset: int, now_ms: int) -> Segment:
    """Create an empty segment, replacing what a crash may have left under its name."""
    segment = Segment(files, directory, base_offset, active=True, created_ms=now_ms, size=0)
    segment.reset_indexes()
    # Truncate only if there is something to truncate: on close, ext4 writes out a file that was
    # once truncated.
    if segment.file.size():
        segment.file.truncate(0)
    return segment


def _warm(
    disk: Disk,
    path: str,
    index_path: str,
    base_offset: int,
    size: int,
    offset: int,
    start: int | None,
) -> None:
    """Reads what is needed to find an offset. Blocks, and shares nothing with a segment. What is
    wrong is told to whoever asks again."""
    with contextlib.suppress(OSError, CorruptBatch):
        if start is None:
            start = OffsetIndex(OpenFiles(disk), index_path, base_offset, active=False).lookup(
                offset
            )
        file = disk.open(path)
        file.bring_in(BATCH_HEADER_BYTES, start)
        for _position, header in scan_headers(file, start, size):
            if header.last_offset >= offset:
                break
