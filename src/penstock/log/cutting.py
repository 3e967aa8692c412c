"""Cutting a log, so that neither a crash nor a power failure in the midst leaves a mixture.

What is cut must be gone from the disk before anything new is appended: bytes of the old tail that a power failure brought back between new
ones would pass for valid. Where only the process dies in between, the next one sees the cut in the page cache and would go on: a file
tells it to sync first. (A power failure may take that file along, and with it all that was not synced.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from penstock.log import names
from penstock.world import Disk, File


@contextlib.contextmanager
def cutting(disk: Disk, directory: str) -> Iterator[None]:
    """Around everything that shortens a log, up to its sync."""
    marker = f"{directory}/{names.CUTTING}"
    disk.open(marker, create=True)
    yield
    disk.remove(marker)


def sync_all(disk: Disk, files: list[File], directories: list[str]) -> None:
    """Blocks. Files are given open: the loop may rename or remove them meanwhile."""
    for file in files:
        file.sync()
    for directory in directories:
        disk.sync_dir(directory)


def finish_cut(disk: Disk, directory: str) -> None:
    """What a process that died in the midst of a cut has left is made to last."""
    marker = f"{directory}/{names.CUTTING}"
    if disk.exists(marker):
        segments = [name for name in disk.list(directory) if name.endswith(names.LOG)]
        sync_all(disk, [disk.open(f"{directory}/{name}") for name in segments[-1:]], [directory])
        disk.remove(marker)
