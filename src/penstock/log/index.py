"""The offset and time indexes of a segment, in Kafka's file formats.

Entries are sorted and of one size. The index of an active segment lies in memory and is written
when the segment is sealed or the log closed: after a crash it is rebuilt from the segment anyway.
Those of sealed segments are read when needed and kept as long as others do not need the room.
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
        """The entries of an active index, read when first needed. There is no file before it is
        first saved."""
        if self._memory is None:
            data = self._files.disk.read(self.path) if self._files.disk.exists(self.path) else b""
            self._memory = bytearray(data[: len(data) - len(data) % self.entry.size])
        return self._memory

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self._memory) if self._memory is not None else len(self._bytes())

    @property
    def is_at_hand(self) -> bool:
        """Whether a lookup need not wait for a disk."""
        return self._memory is not None if self._active else self._files.has_content(self.path)

    def __len__(self) -> int:
        return self.size // self.entry.size

    def _bytes(self) -> bytes | bytearray:
        return self._entries() if self._active else self._files.content(self.path)

    def _get(self, number: int) -> tuple[int, int]:
        first, second = self.entry.unpack_from(self._bytes(), number * self.entry.size)
        return first, second

    def _count_before(self, bound: int, which: int) -> int:
        """How many entries have their first (0) or second (1) field below a bound."""
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
        """Writes the entries of an active index to its file. The caller syncs where it matters."""
        entries = self._entries()
        file = self._files.get(self.path, create=True)
        file.pwrite(entries, 0)
        file.truncate(len(entries))

    def seal(self) -> None:
        """No more appends: from here on the file is all there is."""
        self.save()
        self._memory = None
        self._active = False

    def activate(self) -> None:
        """The segment takes appends again: what follows it was truncated away."""
        self._files.forget(self.path)
        self._active = True

    def reset(self) -> None:
        self._memory = bytearray()

    def _keep(self, count: int) -> None:
        del self._entries()[count * self.entry.size :]


class OffsetIndex(Index):
    """Relative offset (int32) of a batch's last record -> position (int32) of that batch in the
    segment."""

    entry = struct.Struct(">ii")

    def append(self, offset: int, position: int) -> None:
        entries = self._entries()
        entries += self.entry.pack(offset - self._base, position)

    def lookup(self, offset: int) -> int:
        """The position of a batch that lies at or before this offset's."""
        count = self._count_before(offset - self._base + 1, 0)
        return self._get(count - 1)[1] if count else 0

    def truncate(self, offset: int) -> None:
        """Forgets what lies at or after this offset."""
        self._keep(self._count_before(offset - self._base, 0))

    def __getitem__(self, number: int) -> OffsetPosition:
        relative, position = self._get(number)
        return OffsetPosition(self._base + relative, position)


class TimeIndex(Index):
    """Largest timestamp (int64) so far -> relative offset (int32) of the batch that brought it."""

    entry = struct.Struct(">qi")

    def append(self, timestamp: int, offset: int) -> None:
        """Skipped unless the timestamp is larger than the last: later records of an earlier time
        are found by scanning on."""
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
        """The last entry whose timestamp is not after this one: records at or after it begin no
        earlier."""
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
    """Records of this producer from the first to the last offset (its marker, inclusive) are not
    for read_committed consumers."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """Aborted transactions whose marker lies in one segment, in the order of the markers."""

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
        """Forgets transactions that ended at or after this offset."""
        kept = [txn for txn in self.entries() if txn.last_offset < offset]
        if len(kept) != len(self.entries()):
            self._files.get(self.path).truncate(len(kept) * TXN_ENTRY.size)
            self._entries = kept
