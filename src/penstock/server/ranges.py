"""Ranges of files: whether their bytes are in memory, and reading them where they are. Owns the calls that could wait for a disk.

A read of what the page cache does not hold would stop the event loop until the disk has answered. So it is asked first, by a read that
gives up instead of waiting (RWF_NOWAIT); what is not there is read in a thread before it is sent. A simulated file has no descriptor: it is
always in memory. It must never know connections.
"""

from __future__ import annotations

import os
from typing import Protocol

from penstock.ids import Buffer
from penstock.limits import PROBE_EVERY_BYTES

# Linux alone has it; elsewhere every range passes through a thread.
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)


class RangeFile(Protocol):
    def pread(self, length: int, position: int, /) -> bytes: ...

    def fileno(self) -> int: ...


class FileRange(Protocol):
    """What a log gives instead of bytes."""

    @property
    def file(self) -> RangeFile: ...

    @property
    def position(self) -> int: ...

    def __len__(self) -> int: ...


class ShortRange(Exception):
    """A file has fewer bytes than its range promised. The answer is half sent, so that its connection cannot be used any more."""


def descriptor(file: RangeFile) -> int | None:
    """None for a simulated file, and for one that was closed: reading that one says so."""
    try:
        return file.fileno()
    except OSError:
        return None


def in_memory(file: RangeFile, length: int, position: int) -> bool:
    """Whether it can be sent without waiting for a disk, as far as a byte here and there tells: pages leave memory in runs, not singly."""
    fd = descriptor(file)
    if fd is None:
        return True
    last = position + length - 1
    return all(_at_once(fd, bytearray(1), probe) for probe in (*range(position, last, PROBE_EVERY_BYTES), last))


def read_at_once(file: RangeFile, length: int, position: int) -> Buffer | None:
    """All of it, or None where that would have to wait for a disk."""
    fd = descriptor(file)
    if fd is None:
        return read(file, length, position)
    data = bytearray(length)
    return data if _at_once(fd, data, position) else None


def read(file: RangeFile, length: int, position: int) -> bytes:
    data = file.pread(length, position)
    if len(data) != length:
        raise short(len(data), length, position)
    return data


def short(count: int, length: int, position: int) -> ShortRange:
    return ShortRange(f"a file gave {count} of {length} bytes at {position}: it was cut while an answer was being sent")


def _at_once(fd: int, into: bytearray, position: int) -> bool:
    if _NOWAIT is None:
        return False
    try:
        return os.preadv(fd, [into], position, _NOWAIT) == len(into)
    except OSError:  # not in memory, or a file system that cannot tell; a broken disk is told by the read that follows
        return False
