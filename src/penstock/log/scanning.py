"""Reads batch headers from a segment's file, and remembers the positions of those that readers need
next."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator

from penstock.ids import Buffer
from penstock.limits import BATCH_HEADER_BYTES, REMEMBERED_READ_ENDS, REMEMBERED_TAIL_BATCHES
from penstock.log.files import OpenFiles
from penstock.log.index import NotAtHand, OffsetIndex
from penstock.records.batch import MAGIC, BatchHeader, CorruptBatch, read_header
from penstock.world import Disk, File

# Headers are read in pieces of this size: the default distance of entries in the offset index.
_READ_AHEAD_BYTES = 4096

BatchPosition = tuple[int, BatchHeader]
Read = Callable[[int, int], Buffer]


def scan_headers(
    file: File, position: int, end: int, read: Read | None = None
) -> Iterator[BatchPosition]:
    """Yield position and header of every batch from a position on, without reading the records of
    large batches."""
    read = read or file.pread
    ahead: Buffer = b""
    ahead_at = position
    while position < end:
        at = position - ahead_at
        if at + BATCH_HEADER_BYTES > len(ahead):
            ahead = read(min(_READ_AHEAD_BYTES, end - position), position)
            ahead_at, at = position, 0
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


def batch_across(
    file: File, index: OffsetIndex, size: int, start: int, limit: int
) -> BatchPosition | None:
    """Return the batch that begins before a limit and ends after it. `start` is the end of an
    earlier batch, `size` that of the segment.

    Only headers near the limit are read, which the index leads to. Return None if no batch crosses
    the limit, if the headers are not in memory, or if the index is wrong.
    """
    try:
        at, entry = start, index.at_position(limit, at_once=True)
    except NotAtHand:
        return None
    if entry is None or entry.position <= at:
        entry = None
    else:
        at = entry.position
    headers: Buffer = b""
    headers_at = at
    while at < limit:
        if at - headers_at + BATCH_HEADER_BYTES > len(headers):
            length = min(_READ_AHEAD_BYTES, size - at)
            read = file.pread_at_once(length, at)
            if read is None or length < BATCH_HEADER_BYTES:
                return None
            headers, headers_at = read, at
        header = read_header(headers, at - headers_at)
        if (
            header.magic != MAGIC
            or header.size < BATCH_HEADER_BYTES
            or (entry is not None and header.last_offset != entry.offset)
        ):
            return None
        entry = None
        if at + header.size > limit:
            return at, header
        at += header.size
    return None


def warm(
    disk: Disk,
    path: str,
    index_path: str,
    base_offset: int,
    size: int,
    offset: int,
    start: int | None,
) -> None:
    """Read what a lookup of an offset needs into the page cache. Blocks, and shares nothing with a
    segment. Errors resurface on the next lookup."""
    with contextlib.suppress(OSError, CorruptBatch):
        if start is None:
            index = OffsetIndex(OpenFiles(disk), index_path, base_offset, active=False)
            start = index.lookup(offset)
        file = disk.open(path)
        file.bring_in(BATCH_HEADER_BYTES, start)
        for _position, header in scan_headers(file, start, size):
            if header.last_offset >= offset:
                break


class RememberedBatches:
    """Positions of batches in one segment that readers find without reading the file: the last
    appends, and the batches at which reads ended, where sequential readers continue.

    Positions are valid until the segment is truncated. Compaction makes a new segment.
    """

    __slots__ = ("_read_ends", "_tail")

    def __init__(self) -> None:
        # None is empty: most segments of a node with many are idle.
        self._tail: deque[BatchPosition] | None = None
        # By base offset, the oldest first.
        self._read_ends: dict[int, BatchPosition] | None = None

    def find(self, offset: int) -> BatchPosition | None:
        """Return the first batch that ends at or after an offset, if it is remembered."""
        tail = self._tail
        if not tail or offset < tail[0][1].base_offset:
            return None if self._read_ends is None else self._read_ends.get(offset)
        found = None
        for batch in reversed(tail):
            if batch[1].last_offset < offset:
                break
            found = batch
        return found

    def appended(self, position: int, header: BatchHeader) -> None:
        if self._tail is None:
            self._tail = deque(maxlen=REMEMBERED_TAIL_BATCHES)
        self._tail.append((position, header))

    def read_ended(self, position: int, header: BatchHeader) -> None:
        """Remember the batch that follows a read."""
        ends = self._read_ends
        if ends is None:
            ends = self._read_ends = {}
        ends.pop(header.base_offset, None)
        ends[header.base_offset] = (position, header)
        if len(ends) > REMEMBERED_READ_ENDS:
            del ends[next(iter(ends))]

    def after_read(self, position: int) -> BatchHeader | None:
        """Return the batch that follows the last read, if it begins at a position."""
        if not self._read_ends:
            return None
        found, header = self._read_ends[next(reversed(self._read_ends))]
        return header if found == position else None

    def seal(self) -> None:
        """Forget the last appends: readers at the end of the log are in the next segment."""
        self._tail = None

    def clear(self) -> None:
        self._tail = self._read_ends = None
