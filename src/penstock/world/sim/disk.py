"""The Disk and File of a simulated process: POSIX semantics over the machine's drive, which decides
what survives a crash."""

from __future__ import annotations

import errno
import os

from penstock.ids import Buffer
from penstock.world import Volume
from penstock.world.replace import replace_file
from penstock.world.sim.drive import SimDrive
from penstock.world.sim.inode import Inode
from penstock.world.sim.names import (
    Directory,
    Link,
    Parts,
    Rename,
    Unlink,
    find,
    find_directory,
    find_file,
    joined,
    os_error,
    split,
)
from penstock.world.sim.trace import fingerprint

# The size of a drive without a capacity: the largest value of the protocol's int64.
_UNLIMITED = 2**63 - 1
# How often a range to read is not in the page cache.
_NOT_IN_MEMORY = 0.05


class SimFile:
    __slots__ = ("_closed", "_drive", "_epoch", "_inode", "path")

    def __init__(self, path: str, drive: SimDrive, epoch: int, inode: Inode) -> None:
        self.path = path
        self._drive = drive
        self._epoch = epoch
        self._inode = inode
        self._closed = False

    def pread(self, length: int, position: int, /) -> bytes:
        self._check_open()
        if length < 0 or position < 0:
            raise self._error(errno.EINVAL)
        self._drive.begin("pread", self.path)
        return self._inode.read(length, position)

    def pread_at_once(self, length: int, position: int, /) -> bytes | None:
        if not self.in_memory(length, position):
            return None
        try:
            data = self.pread(length, position)
        except OSError:
            return None
        return data if len(data) == length else None

    def in_memory(self, _length: int, _position: int, /) -> bool:
        """Return False at random, so that callers exercise the blocking path."""
        return self._drive.rng.random() >= _NOT_IN_MEMORY

    def bring_in(self, length: int, position: int, /) -> None:
        self.pread(length, position)

    def pwrite(self, data: Buffer, position: int, /) -> int:
        self._check_open()
        if position < 0:
            raise self._error(errno.EINVAL)
        data = bytes(data)
        error = self._drive.fails(
            "pwrite", self.path, position, len(data), fingerprint(data)
        ) or self._no_space(position + len(data))
        if error is not None:
            self._write_prefix(data, position)
            raise error
        self._put(data, position)
        return len(data)

    def write_back(self, _position: int, _length: int, /) -> None:
        """Do nothing: write_back has no guarantee."""
        self._check_open()

    def _no_space(self, end: int) -> OSError | None:
        free = self._drive.free_bytes()
        if free is None or end - len(self._inode.content) <= free:
            return None
        self._drive.record("disk-full", self.path)
        return self._error(errno.ENOSPC)

    def _write_prefix(self, data: bytes, position: int) -> None:
        """Write a random prefix, as far as there is space: a failed write may be partial."""
        free = self._drive.free_bytes()
        room = (
            len(data)
            if free is None
            else max(0, min(len(data), len(self._inode.content) + free - position))
        )
        if room and self._drive.rng.random() < 0.5:
            self._put(data[: self._drive.rng.randrange(room + 1)], position)

    def _put(self, data: bytes, position: int) -> None:
        if data:
            self._inode.write(data, position)
            self._inode.modified_ms = self._drive.now_ms()

    def truncate(self, size: int, /) -> None:
        self._check_open()
        if size < 0:
            raise self._error(errno.EINVAL)
        self._drive.begin("truncate", self.path, size)
        if error := self._no_space(size):
            raise error
        self._inode.truncate(size)
        self._inode.modified_ms = self._drive.now_ms()

    def size(self) -> int:
        self._check_open()
        return len(self._inode.content)

    def sync(self) -> None:
        self._check_open()
        error = self._drive.fails("sync", self.path)
        if error is not None:
            self._inode.fail_sync(self._drive.rng)
            raise error
        if not self._drive.ignore_sync:
            self._inode.sync()

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor: read its bytes", self.path)

    def close(self) -> None:
        """Close the file. Allowed after a crash too, because it changes nothing on disk."""
        self._closed = True

    def _check_open(self) -> None:
        self._drive.check_alive(self._epoch)
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)

    def _error(self, number: int) -> OSError:
        return OSError(number, os.strerror(number), self.path)


class SimDisk:
    """The Disk of one process. After a crash every use of it raises NodeCrashed."""

    def __init__(self, drive: SimDrive) -> None:
        self._drive = drive
        self._epoch = drive.epoch

    @property
    def _root(self) -> Directory:
        self._drive.check_alive(self._epoch)
        return self._drive.names.root

    def open(self, path: str, *, create: bool = False) -> SimFile:
        parts = split(path)
        root = self._root
        self._drive.begin("open", joined(parts))
        if create and parts and parts[-1] not in find_directory(root, parts[:-1]).entries:
            self._make("create", parts, Inode(self._drive.now_ms()))
        return SimFile(joined(parts), self._drive, self._epoch, find_file(root, parts))

    def _make(self, operation: str, parts: Parts, inode: Inode | None) -> None:
        self._drive.begin(operation, joined(parts))
        if self._drive.free_bytes() == 0:
            raise os_error(errno.ENOSPC, parts)
        self._drive.names.change(Link(parts, inode))

    def read(self, path: str) -> bytes:
        inode = find_file(self._root, split(path))
        self._drive.begin("read", joined(split(path)))
        return bytes(inode.content)

    def replace(self, path: str, data: bytes) -> None:
        replace_file(self, path, data)

    def lock(self, path: str) -> object:
        """Create the lock file. A simulated machine runs one process at a time, so the lock is
        always free."""
        self.open(path, create=True)
        return path

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), Directory)

    def _find(self, path: str) -> Directory | Inode | None:
        root = self._root
        try:
            return find(root, split(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, path: str) -> int:
        entry = find(self._root, split(path))
        self._drive.begin("size", joined(split(path)))
        return 0 if isinstance(entry, Directory) else len(entry.content)

    def modified_ms(self, path: str) -> int:
        return find_file(self._root, split(path)).modified_ms

    def volume(self, path: str) -> Volume:
        find(self._root, split(path))
        total, free = self._drive.capacity_bytes, self._drive.free_bytes()
        return Volume(_UNLIMITED if total is None else total, _UNLIMITED if free is None else free)

    def list(self, path: str) -> list[str]:
        directory = find_directory(self._root, split(path))
        self._drive.begin("list", joined(split(path)))
        return sorted(directory.entries)

    def make_dirs(self, path: str) -> None:
        parts = split(path)
        for depth in range(1, len(parts) + 1):
            if parts[depth - 1] not in find_directory(self._root, parts[: depth - 1]).entries:
                self._make("make_dir", parts[:depth], None)
        if not isinstance(find(self._root, parts), Directory):
            raise os_error(errno.EEXIST, parts)

    def rename(self, source: str, target: str) -> None:
        old, new = split(source), split(target)
        entry = find(self._root, old)
        if old == new:
            return
        if new[: len(old)] == old or not new:
            raise os_error(errno.EINVAL, new)
        self._check_target(entry, find_directory(self._root, new[:-1]).entries.get(new[-1]), new)
        self._drive.begin("rename", joined(old), joined(new))
        self._drive.names.change(Rename(old, new))

    def _check_target(
        self, entry: Directory | Inode, existing: Directory | Inode | None, new: Parts
    ) -> None:
        if existing is None:
            return
        if isinstance(entry, Directory) and isinstance(existing, Directory) and existing.entries:
            raise os_error(errno.ENOTEMPTY, new)
        if isinstance(entry, Directory) != isinstance(existing, Directory):
            raise os_error(errno.ENOTDIR if isinstance(entry, Directory) else errno.EISDIR, new)

    def remove(self, path: str) -> None:
        parts = split(path)
        find_file(self._root, parts)
        self._unlink(parts)

    def remove_tree(self, path: str) -> None:
        """Remove entries one by one, so that a crash may leave some of them."""
        parts = split(path)
        directory = find_directory(self._root, parts)
        for name in sorted(directory.entries):
            if isinstance(directory.entries[name], Directory):
                self.remove_tree(joined((*parts, name)))
            else:
                self._unlink((*parts, name))
        if parts:
            self._unlink(parts)

    def _unlink(self, parts: Parts) -> None:
        self._drive.begin("remove", joined(parts))
        self._drive.names.change(Unlink(parts))

    def sync_dir(self, path: str) -> None:
        directory = find_directory(self._root, split(path))
        self._drive.begin("sync_dir", joined(split(path)))
        if not self._drive.ignore_sync:
            self._drive.names.sync(directory)
