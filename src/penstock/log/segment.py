"""One segment: a file of batches and its indexes. Maps offsets and timestamps to positions."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError, NotInMemory
from penstock.ids import NO_TIMESTAMP, Buffer
from penstock.limits import (
    BATCH_HEADER_BYTES,
    CHECKED_INDEX_ENTRIES,
    MAX_RELATIVE_OFFSET,
    WRITE_BACK_BYTES,
)
from penstock.log import names
from penstock.log.files import FileRange, OpenFiles
from penstock.log.index import (
    NotAtHand,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
    TxnIndex,
)
from penstock.log.scanning import (
    BatchPosition,
    RememberedBatches,
    batch_across,
    scan_headers,
    warm,
)
from penstock.records.batch import (
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    read_header,
)
from penstock.world import File


class SegmentTimes(NamedTuple):
    """The largest timestamp of the first batch, and the largest one of all with the last offset of
    the first batch that has it."""

    first: int | None
    largest: TimestampOffset


class TimeHint(NamedTuple):
    """Where the indexes send a lookup by time: the last time index entry that is not after the
    timestamp, the first offset to look at, and the positions that the offset index has for both."""

    entry: TimestampOffset
    entry_at: int
    first_offset: int
    first_at: int


class TimesUnknown(Exception):
    """The timestamps of a segment are on disk. Read them in a thread, then try again."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment.path)
        self.segment = segment


class Segment:
    """The batches from `base_offset` on, up to the next segment. Its indexes are made on first use:
    most segments of a node with many partitions are idle."""

    __slots__ = (
        "_assumed_time",
        "_files",
        "_first_timestamp",
        "_is_active",
        "_is_new",
        "_max_timestamp",
        "_offset_index",
        "_remembered",
        "_since_index_entry",
        "_time_index",
        "_txn_index",
        "base_offset",
        "created_ms",
        "path",
        "size",
        "written_back",
    )

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
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size = size
        # How far writing dirty pages to the disk has started.
        self.written_back = size
        self.path = f"{directory}/{names.segment_file(base_offset, names.LOG)}"
        self._is_active = active
        # Whether the offset and time index begin empty, whatever their files have.
        self._is_new = False
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None
        self._files = files
        self._since_index_entry = 0
        self._max_timestamp: TimestampOffset | None = None
        self._first_timestamp: int | None = None
        # The time of the last write, if the segment is damaged and its timestamps cannot be read.
        self._assumed_time: int | None = None
        self._remembered = RememberedBatches()

    @property
    def file(self) -> File:
        return self._files.get(self.path, create=True)

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            path = self._path_of(names.OFFSET_INDEX)
            index = OffsetIndex(self._files, path, self.base_offset, active=self._is_active)
            self._offset_index = index
            if self._is_new:
                index.reset()
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            path = self._path_of(names.TIME_INDEX)
            index = TimeIndex(self._files, path, self.base_offset, active=self._is_active)
            self._time_index = index
            if self._is_new:
                index.reset()
        return index

    @property
    def txn_index(self) -> TxnIndex:
        index = self._txn_index
        if index is None:
            index = self._txn_index = TxnIndex(self._files, self._path_of(names.TXN_INDEX))
        return index

    def _path_of(self, kind: str) -> str:
        """Return the path of another file of the segment."""
        stem, suffix = self.path.rsplit(names.LOG, 1)
        return f"{stem}{kind}{suffix}"

    @property
    def paths(self) -> tuple[str, ...]:
        kinds = (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX)
        return (self.path, *map(self._path_of, kinds))

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp, and the last offset of the first batch that has it."""
        if self._max_timestamp is None:
            last = self.time_index.last()
            self._max_timestamp = (
                last
                if self._is_valid(last)
                else self._largest_timestamp(TimestampOffset(-1, self.base_offset), 0)
            )
        return self._max_timestamp

    @property
    def known_max_timestamp(self) -> TimestampOffset | None:
        if self.size == 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self._max_timestamp

    @property
    def has_times(self) -> bool:
        """True if `largest_time` need not read from disk."""
        return self._max_timestamp is not None or self._assumed_time is not None

    def set_times(self, times: SegmentTimes) -> None:
        self._first_timestamp, self._max_timestamp = times

    def assume_time(self, modified_ms: int) -> None:
        """Let retention count from the last write of a damaged segment: otherwise it would never
        expire, and fill the disk with all that follow it."""
        self._assumed_time = modified_ms

    def largest_time(self) -> int:
        """Return the largest timestamp, or that of the file if the records have none; retention
        counts from it. Raises TimesUnknown if it must be read from disk."""
        if self._max_timestamp is None:
            if self._assumed_time is None:
                raise TimesUnknown(self)
            return self._assumed_time
        largest = self._max_timestamp.timestamp
        return largest if largest >= 0 else self.created_ms

    @property
    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first batch; rolling by time counts from it."""
        if self._first_timestamp is None and self.size:
            self._first_timestamp = read_header(
                self.file.pread(BATCH_HEADER_BYTES, 0)
            ).max_timestamp
        return self._first_timestamp

    def append(self, data: Buffer, headers: list[BatchHeader], index_interval_bytes: int) -> None:
        """Write whole batches at the end. Bytes that a failed write leaves are not part of the
        log."""
        self.file.pwrite(data, self.size)
        for header in headers:
            self.note(header, index_interval_bytes)
        if self.size - self.written_back >= WRITE_BACK_BYTES:
            self._files.note_grown(self.path)

    def note(self, header: BatchHeader, index_interval_bytes: int) -> None:
        """Add a batch that is at the end of the file to the segment and its indexes."""
        size, timestamp = LENGTH_OVERHEAD + header.batch_length, header.max_timestamp
        last_offset = header.base_offset + header.last_offset_delta
        largest = self._max_timestamp or self.max_timestamp
        if timestamp > largest.timestamp:
            largest = self._max_timestamp = TimestampOffset(timestamp, last_offset)
        if self._since_index_entry > index_interval_bytes:
            self.offset_index.append(last_offset, self.size)
            self.time_index.append(largest.timestamp, largest.offset)
            self._since_index_entry = 0
        if self.size == 0:
            self._first_timestamp = timestamp
        self._remembered.appended(self.size, header)
        self.size += size
        self._since_index_entry += size

    def find(self, offset: int, *, at_once: bool = False) -> BatchPosition | None:
        """Return the first batch that ends at or after an offset; None if the segment ends before.
        With at_once, raises NotInMemory instead of blocking on the disk."""
        remembered = self._remembered.find(offset)
        if remembered is not None or not self.size:
            return remembered
        try:
            position = self.offset_index.lookup(offset, at_once=at_once)
        except NotAtHand:
            raise self._not_in_memory(offset, None) from None
        try:
            return self._scan_for(offset, position, at_once=at_once)
        except CorruptBatch as error:
            start = self._valid_entry(offset)
            if position == start:
                raise _damaged(error) from error
        # The index points between batches, or the batch that it points to is damaged. A scan from
        # an earlier batch shows which.
        try:
            return self._scan_for(offset, start, at_once=at_once)
        except CorruptBatch as error:
            raise _damaged(error) from error

    def _valid_entry(self, offset: int) -> int:
        """Return the position of the last batch in the index at or before an offset whose header
        is that of its entry; 0 if there is none among the nearest entries.

        A scan begins there. To scan a damaged segment from its beginning would hold the event loop
        for seconds, with every fetch of its records.
        """
        for entry in islice(self.offset_index.entries_before(offset), CHECKED_INDEX_ENTRIES):
            # In an index with a wrong entry, a search may end at one that is after the offset.
            if entry.offset <= offset and self._is_entry_valid(entry):
                return entry.position
        return 0

    def _is_entry_valid(self, entry: OffsetPosition) -> bool:
        if not 0 <= entry.position <= self.size - BATCH_HEADER_BYTES:
            return False
        header = read_header(self.file.pread(BATCH_HEADER_BYTES, entry.position))
        return header.magic == MAGIC and header.last_offset == entry.offset

    def last_batch_end(self, position: int, first: BatchHeader, limit: int) -> int:
        """Return the end of the last batch that ends at or before a limit, so that no part of a
        batch is sent. `first` is the batch at `position`, and ends there or before.

        If the headers near the limit are not in memory, return the limit: a client discards a part
        of a batch, which costs less than to wait for the disk.
        """
        across = batch_across(self.file, self.offset_index, self.size, position + first.size, limit)
        if across is None:
            return limit
        self._remembered.read_ended(*across)
        return across[0]

    def end_of_read(self, end: int) -> int | None:
        """Return an offset that the last read, up to a position in this segment, does not reach;
        None if it is not known."""
        following = self._remembered.after_read(end)
        return None if following is None else following.base_offset

    def _scan_for(self, offset: int, start: int, *, at_once: bool = False) -> BatchPosition | None:
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
                warm,
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
        """Return the offset after the last batch. Raises CorruptBatch if the segment does not end
        with a whole batch."""
        end = self.base_offset
        for _position, header in scan_headers(self.file, self._last_indexed(), self.size):
            end = header.next_offset
        return end

    def _last_indexed(self) -> int:
        """Return the position of the last batch in the index if it is valid, otherwise 0."""
        if not len(self.offset_index):
            return 0
        entry = self.offset_index[len(self.offset_index) - 1]
        return entry.position if self._is_entry_valid(entry) else 0

    @property
    def has_indexes_in_memory(self) -> bool:
        """True if `time_hint` does not read from disk."""
        return self.offset_index.is_in_memory and self.time_index.is_in_memory

    def time_hint(self, timestamp: int, from_offset: int) -> TimeHint:
        """Return what the indexes say about a timestamp, without reading the file."""
        entry = self.time_index.lookup(timestamp)
        first = max(entry.offset, from_offset)
        lookup = self.offset_index.lookup
        return TimeHint(entry, lookup(entry.offset), first, lookup(first))

    def find_timestamp(
        self, timestamp: int, from_offset: int, hint: TimeHint
    ) -> BatchPosition | None:
        """Return the first batch that has a record at or after a timestamp, ignoring batches before
        an offset. Raises KafkaError if the segment is damaged."""
        try:
            for position, header in scan_headers(self.file, self._start(hint), self.size):
                if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
                    return position, header
        except CorruptBatch as error:
            raise _damaged(error) from error
        return None

    def _start(self, hint: TimeHint) -> int:
        """Return the position of the first batch to look at: 0 if the hint is wrong. Indexes have
        no checksum, so the batches that they name are checked."""
        entry = hint.entry
        try:
            if entry.timestamp >= 0 and not _has(
                entry, self._scan_for(entry.offset, hint.entry_at)
            ):
                return 0
            found = self._scan_for(hint.first_offset, hint.first_at)
        except CorruptBatch:
            return 0
        return self.size if found is None else found[0]

    def _is_valid(self, entry: TimestampOffset) -> bool:
        """Return True if the batch of a time index entry exists: the index has no checksum."""
        return entry.timestamp < 0 or not self.size or _has(entry, self.find(entry.offset))

    def range(self, position: int, length: int) -> FileRange:
        return FileRange(self.file, position, length)

    def is_full_for(
        self, size: int, last_offset: int, segment_bytes: int, index_bytes: int
    ) -> bool:
        """Return True if batches of this size, up to this offset, need a new segment."""
        return (
            self.size + size > segment_bytes
            or self.offset_index.size + OffsetIndex.entry.size > index_bytes
            or self.time_index.size + 2 * TimeIndex.entry.size > index_bytes
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        )

    def age_ms(self, timestamp: int, now_ms: int) -> int:
        """Return the age of the segment: by the timestamps of its records, or by the clock if they
        have none."""
        first = self.first_timestamp
        return (
            now_ms - self.created_ms
            if first is None or first < 0 or timestamp < 0
            else timestamp - first
        )

    def cut_off(self, offset: int) -> None:
        """Remove the batch that holds an offset and all after it. The file keeps its size: to
        truncate a large one takes long, and the caller does it in a thread."""
        found = self.find(offset)
        if found is not None:
            self.size = found[0]
        self.written_back = min(self.written_back, self.size)
        self._remembered.clear()
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self.txn_index.truncate(offset)
        self._first_timestamp = None
        self._since_index_entry = 0
        self._max_timestamp = self._largest_timestamp(self.time_index.last(), self._last_indexed())

    def _largest_timestamp(self, largest: TimestampOffset, start: int) -> TimestampOffset:
        """Return the given timestamp, or a larger one in the headers from a position on."""
        for _position, header in scan_headers(self.file, start, self.size):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    def save_indexes(self) -> None:
        self._index_largest_timestamp()
        self.offset_index.save()
        self.time_index.save()

    def seal(self) -> None:
        """Write the indexes: there are no more appends."""
        self._remembered.seal()
        self._index_largest_timestamp()
        self.offset_index.seal()
        self.time_index.seal()

    def _index_largest_timestamp(self) -> None:
        """Add the largest timestamp as the last entry, so that no scan is needed when the segment
        is opened again."""
        if self.max_timestamp.timestamp >= 0:
            self.time_index.append(*self.max_timestamp)

    def make_file(self) -> None:
        """Create the file of an empty segment, replacing what a crash may have left."""
        self.reset_indexes()
        # Truncate only if there is something to truncate: on close, ext4 writes out a file that was
        # once truncated.
        if self.file.size():
            self.file.truncate(0)

    def reset_indexes(self) -> None:
        """Clear the indexes before they are rebuilt from the file."""
        self.reset_offset_and_time_indexes()
        if self._txn_index is not None or self._files.disk.exists(self._path_of(names.TXN_INDEX)):
            self.txn_index.truncate(0)

    def reset_offset_and_time_indexes(self) -> None:
        self._remembered.clear()
        self._is_new = True
        self._offset_index = self._time_index = None

    def relocate(self, directory: str, suffix: str = "") -> None:
        """Set the files' new directory or suffix after they were moved or renamed."""
        self.path = f"{directory}/{names.segment_file(self.base_offset, names.LOG)}{suffix}"
        for index, kind in (
            (self._offset_index, names.OFFSET_INDEX),
            (self._time_index, names.TIME_INDEX),
            (self._txn_index, names.TXN_INDEX),
        ):
            if index is not None:
                index.path = self._path_of(kind)

    def load_indexes(self) -> None:
        """Read the indexes of an active segment, so that `note` does not."""
        self.offset_index.load()
        self.time_index.load()

    def activate(self) -> None:
        self.offset_index.activate()
        self.time_index.activate()


def _has(entry: TimestampOffset, found: BatchPosition | None) -> bool:
    return (
        found is not None
        and found[1].last_offset == entry.offset
        and found[1].max_timestamp == entry.timestamp
    )


def _damaged(error: CorruptBatch) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"segment damaged: {error.message}")


def new_segment(files: OpenFiles, directory: str, base_offset: int, now_ms: int) -> Segment:
    """Create an empty segment, replacing what a crash may have left under its name."""
    segment = planned_segment(files, directory, base_offset, now_ms)
    segment.make_file()
    return segment


def planned_segment(files: OpenFiles, directory: str, base_offset: int, now_ms: int) -> Segment:
    """Return an empty segment that has no file until `make_file` is called."""
    segment = Segment(files, directory, base_offset, active=True, created_ms=now_ms, size=0)
    segment.reset_offset_and_time_indexes()
    return segment
