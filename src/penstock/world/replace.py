"""Replaces a small file atomically: write a temporary file, sync it, rename it, sync the
directory.

Both disks use these steps, so that the simulated disk can inject faults between them.
"""

from __future__ import annotations

import posixpath
import threading

from penstock.world import Disk

TEMPORARY_SUFFIX = ".tmp"
# Calls for the same path take turns, from whatever thread: they share its temporary file. Two paths
# may share a turn.
_TURNS = tuple(threading.Lock() for _ in range(64))


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """After a crash at any point the file is the old one or the new one. The next call overwrites a
    temporary file left behind."""
    with _TURNS[hash(path) % len(_TURNS)]:
        _replace(disk, path, data)


def _replace(disk: Disk, path: str, data: bytes) -> None:
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_dir(posixpath.dirname(path) or ".")
