"""Files of the operating system, at the price of its calls alone.

Owns file descriptors and how names and bytes reach the disk. It must never know what the files
hold.

A file descriptor is closed when nobody can use it any more, not before: `close` gives up the file's
own hold on it, and a call that is still running in a thread, or a range waiting to be sent by
`sendfile`, keeps it open until it is done. So a number can never come to mean another file under a
running call.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from penstock.ids import Buffer
from penstock.limits import PROBE_COMING_EVERY_BYTES, PROBE_EVERY_BYTES, READ_AHEAD_BYTES
from penstock.world import Volume
from penstock.world.replace import replace_file

_FILE_MODE = 0o644
# macOS has no fdatasync. (Its fsync leaves the drive's own cache alone, as every database there
# accepts unless told otherwise.)
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
# A read that gives up instead of waiting for the disk. Linux alone has it; elsewhere every read
# that may wait passes through a thread.
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
# The kernel takes no more at once than it would read ahead by itself, which is this by default.
_ADVISED_BYTES = 128 * 1024


class _Descriptor(int):
    """An open file descriptor; letting go of the last reference closes it. os.open makes it
    non-inheritable (O_CLOEXEC)."""

    __slots__ = ()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self)


class RealFile:
    """`pread` and `sync` are the system's calls bound to the descriptor: no Python frame in
    between."""

    __slots__ = ("_descriptor", "_pwrite", "path", "pread", "sync")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self.pread: Callable[[int, int], bytes] = partial(os.pread, descriptor)
        self._pwrite: Callable[[Buffer, int], int] = partial(os.pwrite, descriptor)
        self.sync: Callable[[], None] = partial(_sync_data, descriptor)

    def pread_at_once(self, length: int, position: int, /) -> bytearray | None:
        return (
            None
            if self._is_cached(length, position) is False
            else self._read_at_once(length, position)
        )

    def in_memory(self, length: int, position: int, /) -> bool:
        cached, last = self._is_cached(length, position), position + length - 1
        if cached is False:
            return False
        probes = (
            *range(position, last, PROBE_COMING_EVERY_BYTES if cached else PROBE_EVERY_BYTES),
            last,
        )
        return all(self._read_at_once(1, probe) is not None for probe in probes)

    def _is_cached(self, length: int, position: int) -> bool | None:
        from penstock.world.real.page_cache import is_cached  # ctypes takes milliseconds to load

        return self._descriptor is not None and is_cached(self._descriptor, length, position)

    def _read_at_once(self, length: int, position: int) -> bytearray | None:
        if _NOWAIT is None:
            return None
        data = bytearray(length)
        try:
            return data if os.preadv(self.fileno(), [data], position, _NOWAIT) == length else None
        except OSError:  # not in memory, or a file system that cannot tell
            return None

    def bring_in(self, length: int, position: int, /) -> None:
        # Asked for in words: what the kernel reads ahead by itself it has the next reader go on
        # with, which would be the event loop.
        if hasattr(os, "posix_fadvise"):
            for ahead in range(position, position + length + READ_AHEAD_BYTES, _ADVISED_BYTES):
                os.posix_fadvise(self.fileno(), ahead, _ADVISED_BYTES, os.POSIX_FADV_WILLNEED)
        self.pread(length, position)

    def pwrite(self, data: Buffer, position: int, /) -> int:
        written = self._pwrite(data, position)
        return written if written == len(data) else self._write_rest(data, position, written)

    def _write_rest(self, data: Buffer, position: int, written: int) -> int:
        """A short write is rare: the disk is nearly full, or data is larger than one call may write
        (2 GB on Linux)."""
        view = memoryview(data).cast("B")
        while written < view.nbytes:
            more = self._pwrite(view[written:], position + written)
            if more == 0:
                raise OSError(
                    errno.EIO,
                    f"only {written} of {view.nbytes} bytes could be written at {position}",
                    self.path,
                )
            written += more
        return written

    def truncate(self, size: int, /) -> None:
        os.ftruncate(self.fileno(), size)

    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def write_back(self, position: int, length: int, /) -> None:
        from penstock.world.real.page_cache import (
            begin_writing_out,  # ctypes takes milliseconds to load
        )

        begin_writing_out(self.fileno(), position, length)

    def fileno(self) -> int:
        """Whoever keeps what this returns keeps the file open, also after `close`."""
        if self._descriptor is None:
            self._refuse()
        return self._descriptor

    def close(self) -> None:
        self.pread = self._pwrite = self.sync = self._refuse
        self._descriptor = None

    def _refuse(self, *_: object) -> NoReturn:
        raise OSError(errno.EBADF, "the file was closed before this call", self.path)


class RealDisk:
    """The machine's file system. It keeps no state, so a child process has one of its own."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return RealFile(path, _Descriptor(os.open(path, flags, _FILE_MODE)))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace(self, path: str, data: bytes) -> None:
        replace_file(self, path, data)

    def lock(self, path: str) -> object:
        descriptor = _Descriptor(os.open(path, os.O_RDWR | os.O_CREAT, _FILE_MODE))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def volume(self, path: str) -> Volume:
        found = os.statvfs(path)
        return Volume(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
