"""How a small file is replaced as a whole, the same in every world: written beside, synced,
renamed, and its name synced.

Owns the order of these steps. It must never know which disk it works on, so that the simulated
disk's faults fall between its steps.
"""

from __future__ import annotations

import posixpath

from penstock.world import Disk

TEMPORARY_SUFFIX = ".tmp"


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """After a crash at any point the file is the old one or the new one. A temporary file left
    behind is overwritten by the next call."""
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
