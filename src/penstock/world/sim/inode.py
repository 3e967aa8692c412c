"""The content of a simulated file: what reads see, what is durable, and the changes in between.

It decides how bytes survive a power loss, tear or vanish. File names are in `names`: they survive
independently of the content.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from penstock.ids import Buffer

SECTOR_BYTES = 512


class Write(NamedTuple):
    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        _put(content, self.position, self.data)

    def survive(self, content: bytearray, rng: random.Random, keep: float) -> None:
        """Apply what a power loss leaves of this write: all, nothing, or a part."""
        if rng.random() < keep:
            return self.apply(content)
        if rng.random() < 0.5:
            return self._lose(content, rng)
        return self._tear(content, rng)

    def _lose(self, content: bytearray, rng: random.Random) -> None:
        """The new file size may be durable without the data, which then reads as zeros."""
        if rng.random() < 0.5:
            _grow(content, self.position + len(self.data))

    def _tear(self, content: bytearray, rng: random.Random) -> None:
        """The part before or after a cut survives. Drives write whole sectors, but a file system
        may copy any part of a page to its journal."""
        cut = rng.randrange(len(self.data) + 1)
        if rng.random() < 0.5:
            cut = max(0, cut - (self.position + cut) % SECTOR_BYTES)
        if rng.random() < 0.75:
            _put(content, self.position, self.data[:cut])
            self._lose(content, rng)
        else:
            _put(content, self.position + cut, self.data[cut:])


class Truncate(NamedTuple):
    size: int

    def apply(self, content: bytearray) -> None:
        if self.size < len(content):
            del content[self.size :]
        _grow(content, self.size)

    def survive(self, content: bytearray, rng: random.Random, keep: float) -> None:
        if rng.random() < max(keep, 0.25):
            self.apply(content)


class Inode:
    __slots__ = ("_dirty", "_durable", "content", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.content = bytearray()
        self.modified_ms = modified_ms
        self._durable = bytearray()
        self._dirty: list[Write | Truncate] = []

    def read(self, length: int, position: int) -> bytes:
        with memoryview(self.content) as view:
            return bytes(view[position : position + length])

    def write(self, data: Buffer, position: int) -> None:
        self._change(Write(position, bytes(data)))

    def truncate(self, size: int) -> None:
        self._change(Truncate(size))

    def _change(self, change: Write | Truncate) -> None:
        change.apply(self.content)
        self._dirty.append(change)

    @property
    def unsynced(self) -> int:
        """The number of changes that a power loss may lose."""
        return len(self._dirty)

    def sync(self) -> None:
        for change in self._dirty:
            change.apply(self._durable)
        self._dirty.clear()

    def fail_sync(self, rng: random.Random) -> None:
        """Fail as Linux does: some pages reach the disk, some do not, and all become clean, so that
        no later sync writes them."""
        for change in self._dirty:
            if rng.random() < 0.5:
                change.apply(self._durable)
        self._dirty.clear()

    def evict(self) -> None:
        """Drop clean pages from the page cache. Reads no longer show what a failed sync lost."""
        self.content = bytearray(self._durable)
        for change in self._dirty:
            change.apply(self.content)

    def lose_power(self, rng: random.Random, keep: float) -> None:
        for change in self._dirty:
            change.survive(self._durable, rng, keep)
        self._dirty.clear()
        self.evict()

    def cut(self, size: int) -> None:
        """Lose everything after the first `size` bytes, in memory and on disk."""
        for content in (self.content, self._durable):
            del content[size:]
        if self._dirty:
            self._dirty.append(Truncate(size))

    def flip_bit(self, position: int, bit: int) -> None:
        for content in (self.content, self._durable):
            if position < len(content):
                content[position] ^= 1 << bit


def _grow(content: bytearray, size: int) -> None:
    if size > len(content):
        content.extend(bytes(size - len(content)))


def _put(content: bytearray, position: int, data: bytes) -> None:
    if data:
        _grow(content, position)
        content[position : position + len(data)] = data
