"""Ranges of files: what the server asks of them, and what is said where a file does not keep what
its range promised.

A read of what the page cache does not hold would stop the event loop until the disk has answered.
So it is asked first; what is not there is brought in by a thread before it is sent. It must never
know connections.
"""

from __future__ import annotations

from typing import Protocol


class RangeFile(Protocol):
    def pread(self, length: int, position: int, /) -> bytes: ...

    def pread_at_once(self, length: int, position: int, /) -> bytes | bytearray | None: ...

    def in_memory(self, length: int, position: int, /) -> bool: ...

    def bring_in(self, length: int, position: int, /) -> None: ...

    def fileno(self) -> int: ...


class FileRange(Protocol):
    """What a log gives instead of bytes."""

    @property
    def file(self) -> RangeFile: ...

    @property
    def position(self) -> int: ...

    def __len__(self) -> int: ...


class ShortRange(Exception):
    """A file has fewer bytes than its range promised. The answer is half sent, so that its
    connection cannot be used any more."""


def descriptor(file: RangeFile) -> int | None:
    """None for a simulated file, and for one that was closed: reading that one says so."""
    try:
        return file.fileno()
    except OSError:
        return None


def read(file: RangeFile, length: int, position: int) -> bytes:
    data = file.pread(length, position)
    if len(data) != length:
        raise short(len(data), length, position)
    return data


def short(count: int, length: int, position: int) -> ShortRange:
    return ShortRange(
        f"a file gave {count} of {length} bytes at {position}: it was cut while an answer was "
        "being sent"
    )
