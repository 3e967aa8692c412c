"""Open files and cached indexes of all logs, both bounded, and ranges of files.

A file is opened on first use, and evicted when too many others are open. Eviction only drops a
reference: a range that is being sent has its own, and the file closes with the last one. Closing
may take long (ext4 writes out a file that was once truncated), so evicted files are kept until a
thread drops them.

A file with unsynced writes may be evicted too: fdatasync works on the file, not on the descriptor,
and since Linux 4.16 the next descriptor that syncs gets an unreported write-back error.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from penstock import limits
from penstock.world import Disk, File


class OpenFiles:
    """The files of all logs of a node."""

    def __init__(
        self, disk: Disk, budget: int = limits.MAX_OPEN_LOG_FILES, *, read_only: bool = False
    ) -> None:
        self.disk = disk
        # A thread that reads must not create the file of a segment that the log removes meanwhile.
        self._read_only = read_only
        self._budget = budget
        self._open: OrderedDict[str, File] = OrderedDict()
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._forgotten: list[File] = []
        self._cached_bytes = 0

    def get(self, path: str, *, create: bool = False) -> File:
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        file = self._open[path] = self.disk.open(path, create=create and not self._read_only)
        if len(self._open) > self._budget:
            self._forgotten.append(self._open.popitem(last=False)[1])
        return file

    def has_content(self, path: str) -> bool:
        return path in self._contents

    def content(self, path: str) -> bytes:
        """Return the content of a small file that does not change: the index of a sealed segment.
        It is not mapped, because a bad sector would then kill the process."""
        content = self._contents.get(path)
        if content is not None:
            self._contents.move_to_end(path)
            return content
        content = self._contents[path] = self.disk.read(path)
        self._cached_bytes += len(content)
        while self._cached_bytes > limits.MAX_CACHED_INDEX_BYTES and len(self._contents) > 1:
            self._cached_bytes -= len(self._contents.popitem(last=False)[1])
        return content

    def forget(self, path: str) -> None:
        """Drop a path that is about to be renamed, removed or written to."""
        file = self._open.pop(path, None)
        if file is not None:
            self._forgotten.append(file)
        self._cached_bytes -= len(self._contents.pop(path, b""))

    def take_forgotten(self) -> list[File]:
        """Return the evicted files; the caller drops them in a thread."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def forget_under(self, directory: str) -> None:
        prefix = directory + "/"
        for path in [path for path in (*self._open, *self._contents) if path.startswith(prefix)]:
            self.forget(path)

    def __len__(self) -> int:
        return len(self._open)


@dataclass(slots=True)
class FileRange:
    """Bytes of a log in their file: what a reader gets instead of the bytes. Not frozen, which
    would double the time to make one."""

    file: File
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return self.file.pread(self.length, self.position)
