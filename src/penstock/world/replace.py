"""Replaces a small file atomically: write a temporary file, sync it, rename it, sync the
directory.

Both disks use these steps, so that the simulated disk can inject faults between them.
"""

from __future__ import annotations

import posixpath

from penstock.world import Disk

TEMPORARY_SUFFIX = ".tmp"


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """After a crash at any point the file is the old one or the new one. The next call overwrites a
    temporary file left behind."""
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
