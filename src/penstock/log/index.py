"""The offset, time and transaction indexes of a segment, in Kafka's file formats.

Entries of the offset and time index are sorted and of one size. The index of an active segment is
in memory and is written when the segment is sealed or the log closed: after a crash it is rebuilt
from the segment anyway. Of the index of a sealed segment only the blocks that a lookup needs are
read, and cached within a budget.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from penstock.ids import Buffer
from penstock.log.files import OpenFiles
from penstock.records.batch import CorruptBatch
from penstock.world import File

# Entries of a sealed index that are read together: 4 KB of an offset index, 6 KB of a time index.
BLOCK_ENTRIES = 512


class NotAtHand(Exception):
    """A lookup that must not block needs a part of an index that is not in memory."""


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class Index:
    """A file of sorted, fixed-size entries."""

    __slots__ = ("_active", "_base", "_files", "_memory", "_sealed_bytes", "path")

    entry: ClassVar[struct.Struct]

    def __init__(self, files: OpenFiles, path: str, base_offset: int, *, active: bool) -> None:
        self.path = path
        self._files = files
        self._base = base_offset
        self._memory: bytearray | None = None
        self._active = active
        # The size of a sealed index, once it was needed.
        self._sealed_bytes: int | None = None

    def _entries(self) -> bytearray:
        """Return the entries of an active index, read on first use. There is no file before the
        first save."""
        if self._memory is None:
            data = self._files.disk.read(self.path) if self._files.disk.exists(self.path) else b""
            self._memory = bytearray(data[: len(data) - len(data) % self.entry.size])
        return self._memory

    @property
    def size(self) -> int:
        """The size in bytes."""
        if self._memory is not None:
            return len(self._memory)
        if self._active:
            return len(self._entries())
        if self._sealed_bytes is None:
            self._sealed_bytes = self._files.get(self.path).size()
        return self._sealed_bytes

    @property
    def is_in_memory(self) -> bool:
        return self._memory is not None

    def __len__(self) -> int:
        return self.size // self.entry.size

    def _get(self, number: int, *, at_once: bool = False) -> tuple[int, int]:
        if self._active:
            data: Buffer = self._at_hand(at_once=at_once)
        else:
            block, number = divmod(number, BLOCK_ENTRIES)
            data = self._block(block, at_once=at_once)
        first, second = self.entry.unpack_from(data, number * self.entry.size)
        return first, second

    def _at_hand(self, *, at_once: bool) -> bytearray:
        """Return the entries of an active index."""
        if at_once and self._memory is None:
            raise NotAtHand
        return self._entries()

    def _block(self, number: int, *, at_once: bool) -> Buffer:
        """Return a block of a sealed index."""
        width = self.entry.size
        position = number * BLOCK_ENTRIES * width
        length = min(BLOCK_ENTRIES * width, len(self) * width - position)
        block = self._files.block(self.path, length, position, at_once=at_once)
        if block is None:
            raise NotAtHand
        if len(block) < length:
            raise CorruptBatch(f"{self.path} was cut to {position + len(block)} bytes")
        return block

    def _count_before(self, bound: int, which: int, *, at_once: bool = False) -> int:
        """Return how many entries have their first (0) or second (1) field below a bound. Raises
        NotAtHand instead of blocking on the disk if at_once."""
        if self._active:
            return self._count_in(self._at_hand(at_once=at_once), bound, which)
        low, high = 0, self._block_count(at_once=at_once)
        while low < high:
            middle = (low + high) // 2
            if self.entry.unpack_from(self._block(middle, at_once=at_once))[which] < bound:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return 0
        block = self._block(low - 1, at_once=at_once)
        return (low - 1) * BLOCK_ENTRIES + self._count_in(block, bound, which)

    def _block_count(self, *, at_once: bool) -> int:
        if at_once and self._sealed_bytes is None and not self._files.is_open(self.path):
            raise NotAtHand  # to open a file may block too
        return -(-len(self) // BLOCK_ENTRIES)

    def _count_in(self, data: Buffer, bound: int, which: int) -> int:
        unpack, width = self.entry.unpack_from, self.entry.size
        low, high = 0, len(data) // width
        while low < high:
            middle = (low + high) // 2
            if unpack(data, middle * width)[which] < bound:
                low = middle + 1
            else:
                high = middle
        return low

    def load(self) -> None:
        """Read an active index into memory."""
        self._entries()

    def save(self) -> None:
        """Write the entries of an active index to its file. The caller syncs if required."""
        entries = self._entries()
        file = self._files.get(self.path, create=True)
        file.pwrite(entries, 0)
        file.truncate(len(entries))

    def seal(self) -> None:
        """Write the index and drop the memory: there are no more appends."""
        self.save()
        self._memory = None
        self._sealed_bytes = None
        self._active = False

    def activate(self) -> None:
        """Accept appends again after the following segments were truncated."""
        self._files.forget(self.path)
        self._active = True

    def reset(self) -> None:
        self._memory = bytearray()

    def _keep(self, count: int) -> None:
        del self._entries()[count * self.entry.size :]


class OffsetIndex(Index):
    """Maps the relative offset (int32) of a batch's last record to the position (int32) of that
    batch in the segment."""

    __slots__ = ()

    entry = struct.Struct(">ii")

    def append(self, offset: int, position: int) -> None:
        entries = self._entries()
        entries += self.entry.pack(offset - self._base, position)

    def lookup(self, offset: int, *, at_once: bool = False) -> int:
        """Return the position of a batch at or before the one that holds an offset. With at_once,
        raises NotAtHand instead of blocking on the disk."""
        count = self._count_before(offset - self._base + 1, 0, at_once=at_once)
        return self._get(count - 1, at_once=at_once)[1] if count else 0

    def entries_before(self, offset: int) -> Iterator[OffsetPosition]:
        """Yield the entries at or before an offset, the last one first."""
        for number in reversed(range(self._count_before(offset - self._base + 1, 0))):
            yield self[number]

    def at_position(self, position: int, *, at_once: bool = False) -> OffsetPosition | None:
        """Return the last entry whose batch begins at or before a position. With at_once, raises
        NotAtHand instead of blocking on the disk."""
        count = self._count_before(position + 1, 1, at_once=at_once)
        if count == 0:
            return None
        relative, position = self._get(count - 1, at_once=at_once)
        return OffsetPosition(self._base + relative, position)

    def truncate(self, offset: int) -> None:
        """Remove the entries at or after an offset."""
        self._keep(self._count_before(offset - self._base, 0))

    def __getitem__(self, number: int) -> OffsetPosition:
        relative, position = self._get(number)
        return OffsetPosition(self._base + relative, position)


class TimeIndex(Index):
    """Maps the largest timestamp (int64) so far to the relative offset (int32) of the batch that
    has it."""

    __slots__ = ()

    entry = struct.Struct(">qi")

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry unless the timestamp is not larger than the last one: a scan finds later
        records with an earlier timestamp."""
        entries = self._entries()
        if (
            not entries
            or timestamp > self.entry.unpack_from(entries, len(entries) - self.entry.size)[0]
        ):
            entries += self.entry.pack(timestamp, offset - self._base)

    def last(self) -> TimestampOffset:
        count = len(self)
        return self[count - 1] if count else TimestampOffset(-1, self._base)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry whose timestamp is not after this one: records at or after the
        timestamp begin no earlier."""
        count = self._count_before(timestamp + 1, 0)
        return self[count - 1] if count else TimestampOffset(-1, self._base)

    def truncate(self, offset: int) -> None:
        self._keep(self._count_before(offset - self._base, 1))

    def __getitem__(self, number: int) -> TimestampOffset:
        timestamp, relative = self._get(number)
        return TimestampOffset(timestamp, self._base + relative)


# version, producer id, first offset, last offset, last stable offset
TXN_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    """An aborted transaction: read_committed consumers skip the records of this producer from the
    first to the last offset (its marker, inclusive)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """The aborted transactions whose marker is in one segment, in the order of the markers. There
    is no file if there are none."""

    __slots__ = ("_entries", "_files", "path")

    def __init__(self, files: OpenFiles, path: str) -> None:
        self.path = path
        self._files = files
        self._entries: list[AbortedTxn] | None = None

    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            self._entries = self._read() if self._files.disk.exists(self.path) else []
        return self._entries

    def _read(self) -> list[AbortedTxn]:
        data = self._files.disk.read(self.path)
        whole = len(data) - len(data) % TXN_ENTRY.size
        return [AbortedTxn(*fields) for _version, *fields in TXN_ENTRY.iter_unpack(data[:whole])]

    def prepare(self) -> None:
        """Read and open the file, so that `append` need not."""
        self.entries()
        self._files.get(self.path, create=True)

    def append(self, txn: AbortedTxn) -> None:
        entries = self.entries()
        self._files.get(self.path, create=True).pwrite(
            TXN_ENTRY.pack(_VERSION, *txn), len(entries) * TXN_ENTRY.size
        )
        entries.append(txn)

    @property
    def file(self) -> File | None:
        """The file; None if there is none."""
        return self._files.get(self.path) if self._files.disk.exists(self.path) else None

    def truncate(self, offset: int) -> None:
        """Remove the transactions that ended at or after an offset."""
        kept = [txn for txn in self.entries() if txn.last_offset < offset]
        if len(kept) != len(self.entries()):
            self._files.get(self.path).truncate(len(kept) * TXN_ENTRY.size)
            self._entries = kept
