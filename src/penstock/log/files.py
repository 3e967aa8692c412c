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
from penstock.ids import Buffer
from penstock.world import TOO_MANY_FILES, Disk, File


def max_open_files(max_descriptors: int | None) -> int:
    """Return how many files the logs of a node keep open. If descriptors are few, connections get
    half of them (`server.quotas`), and log files their share of the others."""
    if max_descriptors is None:
        return limits.MAX_OPEN_LOG_FILES
    share = limits.MAX_OPEN_LOG_FILES / limits.RESERVED_DESCRIPTORS
    return max(1, min(limits.MAX_OPEN_LOG_FILES, int(max_descriptors // 2 * share)))


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
        # Blocks of files that do not change, by path and position.
        self._blocks: OrderedDict[str, dict[int, Buffer]] = OrderedDict()
        self._forgotten: list[File] = []
        self._cached_bytes = 0
        # Files whose new data is to be written out.
        self._grown: dict[str, None] = {}

    def get(self, path: str, *, create: bool = False) -> File:
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        file = self._open[path] = self._new(path, create=create and not self._read_only)
        if len(self._open) > self._budget:
            self._forgotten.append(self._open.popitem(last=False)[1])
            if len(self._forgotten) > self._budget // 4:
                # They need descriptors too: a thread would drop them too late.
                self._forgotten.clear()
        return file

    def _new(self, path: str, *, create: bool) -> File:
        try:
            return self.disk.open(path, create=create)
        except OSError as error:
            if error.errno not in TOO_MANY_FILES:
                raise
        # Close files that were not used lately, and try again.
        for _ in range(-(-len(self._open) // 2)):
            self._open.popitem(last=False)
        self._forgotten.clear()
        return self.disk.open(path, create=create)

    def is_open(self, path: str) -> bool:
        return path in self._open

    def block(
        self, path: str, length: int, position: int, *, at_once: bool = False
    ) -> Buffer | None:
        """Return a block of a file that does not change: the index of a sealed segment. With
        at_once, return None instead of blocking on the disk.

        The file is not mapped, because a bad sector would then kill the process.
        """
        blocks = self._blocks.get(path)
        if blocks is not None:
            self._blocks.move_to_end(path)
            block = blocks.get(position)
            if block is not None:
                return block
        if at_once:
            found: Buffer | None = (
                self._open[path].pread_at_once(length, position) if path in self._open else None
            )
            if found is None:
                return None
        else:
            found = self.get(path).pread(length, position)
        self._blocks.setdefault(path, {})[position] = found
        self._cached_bytes += len(found)
        while self._cached_bytes > limits.MAX_CACHED_INDEX_BYTES and len(self._blocks) > 1:
            self._drop_blocks(self._blocks.popitem(last=False)[1])
        return found

    def _drop_blocks(self, blocks: dict[int, Buffer]) -> None:
        self._cached_bytes -= sum(map(len, blocks.values()))

    def forget(self, path: str) -> None:
        """Drop a path that is about to be renamed, removed or written to."""
        file = self._open.pop(path, None)
        if file is not None:
            self._forgotten.append(file)
        self._drop_blocks(self._blocks.pop(path, {}))

    def take_forgotten(self) -> list[File]:
        """Return the evicted files; the caller drops them in a thread."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def note_grown(self, path: str) -> None:
        """Remember a file that has grown by much since its data was last written out."""
        self._grown[path] = None

    def take_grown(self) -> list[str]:
        grown, self._grown = list(self._grown), {}
        return grown

    def forget_under(self, directory: str) -> None:
        prefix = directory + "/"
        for path in [path for path in (*self._open, *self._blocks) if path.startswith(prefix)]:
            self.forget(path)

    def forget_all(self) -> None:
        self._forgotten += self._open.values()
        self._open.clear()
        self._blocks.clear()
        self._cached_bytes = 0

    @property
    def cached_bytes(self) -> int:
        """The size of the cached indexes."""
        return self._cached_bytes

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
