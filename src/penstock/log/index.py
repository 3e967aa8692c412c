"""The offset, time and transaction indexes of a segment, in Kafka's file formats.

Entries of the offset and time index are sorted and of one size. The index of an active segment is
in memory and is written when the segment is sealed or the log closed: after a crash it is rebuilt
from the segment anyway. Indexes of sealed segments are read when needed and cached within a budget.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.log.files import OpenFiles


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class Index:
    """A file of sorted, fixed-size entries."""

    entry: struct.Struct

    def __init__(self, files: OpenFiles, path: str, base_offset: int, *, active: bool) -> None:
        self.path = path
        self._files = files
        self._base = base_offset
        self._memory: bytearray | None = None
        self._active = active

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
        return len(self._memory) if self._memory is not None else len(self._bytes())

    @property
    def is_at_hand(self) -> bool:
        """True if a lookup does not read from disk."""
        return self._memory is not None if self._active else self._files.has_content(self.path)

    def __len__(self) -> int:
        return self.size // self.entry.size

    def _bytes(self) -> bytes | bytearray:
        return self._entries() if self._active else self._files.content(self.path)

    def _get(self, number: int) -> tuple[int, int]:
        first, second = self.entry.unpack_from(self._bytes(), number * self.entry.size)
        return first, second

    def _count_before(self, bound: int, which: int) -> int:
        """Return how many entries have their first (0) or second (1) field below a bound."""
        data, unpack, width = self._bytes(), self.entry.unpack_from, self.entry.size
        low, high = 0, len(data) // width
        while low < high:
            middle = (low + high) // 2
            if unpack(data, middle * width)[which] < bound:
                low = middle + 1
            else:
                high = middle
        return low

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

    entry = struct.Struct(">ii")

    def append(self, offset: int, position: int) -> None:
        entries = self._entries()
        entries += self.entry.pack(offset - self._base, position)

    def lookup(self, offset: int) -> int:
        """Return the position of a batch at or before the one that holds an offset."""
        count = self._count_before(offset - self._base + 1, 0)
        return self._get(count - 1)[1] if count else 0

    def at_position(self, position: int) -> OffsetPosition | None:
        """Return the last entry whose batch begins at or before a position."""
        count = self._count_before(position + 1, 1)
        return self[count - 1] if count else None

    def truncate(self, offset: int) -> None:
        """Remove the entries at or after an offset."""
        self._keep(self._count_before(offset - self._base, 0))

    def __getitem__(self, number: int) -> OffsetPosition:
        relative, position = self._get(number)
        return OffsetPosition(self._base + relative, position)


class TimeIndex(Index):
    """Maps the largest timestamp (int64) so far to the relative offset (int32) of the batch that
    has it."""

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

    def append(self, txn: AbortedTxn) -> None:
        entries = self.entries()
        self._files.get(self.path, create=True).pwrite(
            TXN_ENTRY.pack(_VERSION, *txn), len(entries) * TXN_ENTRY.size
        )
        entries.append(txn)

    def truncate(self, offset: int) -> None:
        """Remove the transactions that ended at or after an offset."""
        kept = [txn for txn in self.entries() if txn.last_offset < offset]
        if len(kept) != len(self.entries()):
            self._files.get(self.path).truncate(len(kept) * TXN_ENTRY.size)
            self._entries = kept
