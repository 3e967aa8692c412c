"""Files of the operating system, without overhead over its system calls.

A file descriptor is closed with its last reference, not by `close`: a call that still runs in a
thread, or a range queued for `sendfile`, keeps it open until it is done. Therefore the number never
denotes another file during a call.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import NoReturn

from penstock.ids import Buffer
from penstock.limits import (
    PAGE_CACHE_CHECK_BYTES,
    PAGE_CACHE_TRUST_S,
    PROBE_COMING_EVERY_BYTES,
    PROBE_EVERY_BYTES,
    READ_AHEAD_BYTES,
)
from penstock.world import Volume
from penstock.world.replace import replace_file

_FILE_MODE = 0o644
# macOS has no fdatasync. Its fsync does not flush the drive's cache; databases there accept that by
# default.
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
# A read that gives up instead of waiting for the disk. Only Linux has it; elsewhere every read that
# may wait runs in a thread.
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
# The kernel accepts no more per call than its own read-ahead, which is this by default.
_ADVISED_BYTES = 128 * 1024


class _Descriptor(int):
    """An open file descriptor, closed with its last reference. os.open makes it non-inheritable
    (O_CLOEXEC)."""

    __slots__ = ()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self)


class RealFile:
    """`pread` and `sync` are the system's calls bound to the descriptor, without a Python frame.

    Two ranges are known to be in memory without a system call: what was written in the last moments
    and what `in_memory` has checked, which looks ahead for sequential readers.
    """

    __slots__ = (
        "_checked_at",
        "_checked_end",
        "_checked_start",
        "_descriptor",
        "_pwrite",
        "_written_at",
        "_written_end",
        "_written_start",
        "path",
        "pread",
        "sync",
    )

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self.pread: Callable[[int, int], bytes] = partial(os.pread, descriptor)
        self._pwrite: Callable[[Buffer, int], int] = partial(os.pwrite, descriptor)
        self.sync: Callable[[], None] = partial(_sync_data, descriptor)
        self._written_start = self._written_end = self._checked_start = self._checked_end = 0
        # When the first bytes of these ranges were written or checked.
        self._written_at = self._checked_at = -PAGE_CACHE_TRUST_S

    def pread_at_once(self, length: int, position: int, /) -> bytearray | None:
        if (
            not self._is_known(length, position)
            and self._is_cached(length, position, self._descriptor) is False
        ):
            return None
        return self._read_at_once(length, position)

    def in_memory(self, length: int, position: int, /) -> bool:
        if self._is_known(length, position):
            return True
        if self._descriptor is None:
            return False
        if length < PAGE_CACHE_CHECK_BYTES:
            # A sequential reader needs what follows next.
            ahead = min(PAGE_CACHE_CHECK_BYTES, self.size() - position)
            if ahead > length and self._is_cached(ahead, position, self._descriptor):
                return self._probe(ahead, position, PROBE_COMING_EVERY_BYTES)
        cached = self._is_cached(length, position, self._descriptor)
        return cached is not False and self._probe(
            length, position, PROBE_COMING_EVERY_BYTES if cached else PROBE_EVERY_BYTES
        )

    def _is_known(self, length: int, position: int) -> bool:
        end, trusted_since = position + length, monotonic() - PAGE_CACHE_TRUST_S
        return (
            self._written_start <= position
            and end <= self._written_end
            and self._written_at > trusted_since
        ) or (
            self._checked_start <= position
            and end <= self._checked_end
            and self._checked_at > trusted_since
        )

    def _probe(self, length: int, position: int, distance: int) -> bool:
        """Return True if single bytes of a range can be read; then all of it counts as checked."""
        end = position + length
        for probe in (*range(position, end - 1, distance), end - 1):
            if self._read_at_once(1, probe) is None:
                return False
        self._checked_start, self._checked_end, self._checked_at = position, end, monotonic()
        return True

    def _is_cached(self, length: int, position: int, descriptor: int | None) -> bool | None:
        from penstock.world.real.page_cache import is_cached  # ctypes takes milliseconds to load

        return descriptor is not None and is_cached(descriptor, length, position)

    def _read_at_once(self, length: int, position: int) -> bytearray | None:
        if _NOWAIT is None:
            return None
        data = bytearray(length)
        try:
            return data if os.preadv(self.fileno(), [data], position, _NOWAIT) == length else None
        except OSError:  # not in memory, or a file system without such reads
            return None

    def bring_in(self, length: int, position: int, /) -> None:
        # Explicit read-ahead: the next reader continues what the kernel reads ahead on its own, and
        # that would be the event loop.
        if hasattr(os, "posix_fadvise"):
            for ahead in range(position, position + length + READ_AHEAD_BYTES, _ADVISED_BYTES):
                os.posix_fadvise(self.fileno(), ahead, _ADVISED_BYTES, os.POSIX_FADV_WILLNEED)
        self.pread(length, position)

    def pwrite(self, data: Buffer, position: int, /) -> int:
        written = self._pwrite(data, position)
        if written != len(data):
            written = self._write_rest(data, position, written)
        now = monotonic()
        if position != self._written_end or now - self._written_at > PAGE_CACHE_TRUST_S / 2:
            self._written_start, self._written_at = position, now
        self._written_end = position + written
        return written

    def _write_rest(self, data: Buffer, position: int, written: int) -> int:
        """Continue a short write. It is rare: the disk is nearly full, or the data is larger than
        one call may write (2 GB on Linux)."""
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
        self._written_end = min(self._written_end, size)
        self._checked_end = min(self._checked_end, size)
        os.ftruncate(self.fileno(), size)

    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def write_back(self, position: int, length: int, /) -> None:
        from penstock.world.real.page_cache import (
            begin_writing_out,  # ctypes takes milliseconds to load
        )

        begin_writing_out(self.fileno(), position, length)

    def fileno(self) -> int:
        """Return the descriptor. A reference to it keeps the file open, also after `close`."""
        if self._descriptor is None:
            self._refuse()
        return self._descriptor

    def close(self) -> None:
        self.pread = self._pwrite = self.sync = self._refuse
        self._descriptor = None

    def _refuse(self, *_: object) -> NoReturn:
        raise OSError(errno.EBADF, "the file is closed", self.path)


class RealDisk:
    """The machine's file system. It has no state, so a child process can have its own."""

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
