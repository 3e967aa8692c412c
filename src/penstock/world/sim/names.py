"""The names of a simulated disk: a tree of directories, and the journal of changes to it that are
not yet durable."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.world.sim.inode import Inode

Parts = tuple[str, ...]


@dataclass(eq=False, slots=True)
class Directory:
    entries: dict[str, Directory | Inode] = field(default_factory=dict)

    def copy(self) -> Directory:
        """Copy the directories. The files in them are shared."""
        copies = (
            (name, entry.copy() if isinstance(entry, Directory) else entry)
            for name, entry in self.entries.items()
        )
        return Directory(dict(copies))


@dataclass(frozen=True, slots=True)
class Link:
    """A new name of a file, or of an empty directory (None)."""

    path: Parts
    inode: Inode | None

    def apply(self, root: Directory) -> None:
        find_directory(root, self.path[:-1]).entries[self.path[-1]] = self.inode or Directory()

    def parents(self) -> tuple[Parts, ...]:
        return (self.path[:-1],)


@dataclass(frozen=True, slots=True)
class Unlink:
    path: Parts

    def apply(self, root: Directory) -> None:
        del find_directory(root, self.path[:-1]).entries[self.path[-1]]

    def parents(self) -> tuple[Parts, ...]:
        return (self.path[:-1],)


@dataclass(frozen=True, slots=True)
class Rename:
    source: Parts
    target: Parts

    def apply(self, root: Directory) -> None:
        entry = find_directory(root, self.source[:-1]).entries.pop(self.source[-1])
        find_directory(root, self.target[:-1]).entries[self.target[-1]] = entry

    def parents(self) -> tuple[Parts, ...]:
        return (self.source[:-1], self.target[:-1])


Change = Link | Unlink | Rename


class Names:
    """The journal has one order for the whole disk. A power loss keeps a prefix of it, as a
    journalling file system does."""

    def __init__(self) -> None:
        self.root = Directory()
        self._durable = Directory()
        self._journal: list[tuple[Change, tuple[Directory, ...]]] = []

    def change(self, change: Change) -> None:
        parents = tuple(find_directory(self.root, parts) for parts in change.parents())
        change.apply(self.root)
        self._journal.append((change, parents))

    @property
    def unsynced(self) -> int:
        return len(self._journal)

    def sync(self, directory: Directory) -> None:
        """Make the changes in a directory durable, and all changes before them in the journal.
        Directories are compared by identity: a renamed directory is still the same."""
        count = max(
            (
                count
                for count, (_, changed) in enumerate(self._journal, 1)
                if any(parent is directory for parent in changed)
            ),
            default=0,
        )
        self._commit(count)

    def lose_power(self, keep: int) -> None:
        """Keep the `keep` oldest changes and lose the others."""
        self._commit(keep)
        self._journal.clear()
        self.root = self._durable.copy()

    def _commit(self, count: int) -> None:
        for change, _ in self._journal[:count]:
            change.apply(self._durable)
        del self._journal[:count]

    def files(self) -> list[Inode]:
        """Return every file that has a name."""
        return [inode for _, inode in self.paths()]

    def paths(self) -> Iterator[tuple[Parts, Inode]]:
        """Return every file with its path, in no particular order."""
        return _paths((), self.root)


def _paths(parts: Parts, directory: Directory) -> Iterator[tuple[Parts, Inode]]:
    for name, entry in directory.entries.items():
        if isinstance(entry, Directory):
            yield from _paths((*parts, name), entry)
        else:
            yield (*parts, name), entry


@functools.lru_cache(4096)
def split(path: str) -> Parts:
    """Split a path into its parts. Relative paths start at the root too."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ValueError(f"{path!r}: the simulated disk does not resolve '..'")
    return parts


def joined(parts: Parts) -> str:
    return "/" + "/".join(parts)


def find(root: Directory, parts: Parts) -> Directory | Inode:
    entry: Directory | Inode = root
    for part in parts:
        if not isinstance(entry, Directory):
            raise os_error(errno.ENOTDIR, parts)
        if part not in entry.entries:
            raise os_error(errno.ENOENT, parts)
        entry = entry.entries[part]
    return entry


def find_directory(root: Directory, parts: Parts) -> Directory:
    entry = find(root, parts)
    if not isinstance(entry, Directory):
        raise os_error(errno.ENOTDIR, parts)
    return entry


def find_file(root: Directory, parts: Parts) -> Inode:
    entry = find(root, parts)
    if isinstance(entry, Directory):
        raise os_error(errno.EISDIR, parts)
    return entry


def os_error(number: int, parts: Parts) -> OSError:
    """Return the OSError of an errno. OSError picks the subclass, FileNotFoundError for
    instance."""
    return OSError(number, os.strerror(number), joined(parts))
