"""Whether the page cache can be trusted: what a process that died in a sync or a cut, or whose sync
failed, tells the next one.

After a failed sync Linux calls the lost pages clean: they are still read back, and a later sync
succeeds without writing them. And a cut that is not yet synced is seen in the cache, but a power
failure may bring the old bytes back, between new ones that were appended after it. So a file lies
in the partition's directory while a sync or a cut is under way, and stays if it does not end well:
recovery then writes every batch of the unsynced tail once more and syncs it before anything is
appended. (A power failure may take that file along, but with it all that was only in the cache.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from penstock.log import names
from penstock.world import Disk, File

_MARKERS = (names.SYNCING, names.CUTTING)


@contextlib.contextmanager
def cutting(disk: Disk, directory: str) -> Iterator[None]:
    """Around everything that shortens a log, up to the sync of what is left."""
    with _marked(disk, f"{directory}/{names.CUTTING}"):
        yield


def sync_log(disk: Disk, directory: str, files: list[File], directories: list[str]) -> None:
    """Blocks. Files are given open: the loop may rename or remove them meanwhile."""
    with _marked(disk, f"{directory}/{names.SYNCING}"):
        for file in files:
            file.sync()
        for path in directories:
            disk.sync_dir(path)


@contextlib.contextmanager
def _marked(disk: Disk, marker: str) -> Iterator[None]:
    disk.open(marker, create=True)
    yield
    disk.remove(marker)


def is_unsure(disk: Disk, directory: str) -> bool:
    return any(disk.exists(f"{directory}/{marker}") for marker in _MARKERS)


def make_sure(disk: Disk, directory: str, files: list[File]) -> None:
    """Called when all that was in doubt has been written once more."""
    for file in files:
        file.sync()
    disk.sync_dir(directory)
    for marker in _MARKERS:
        if disk.exists(f"{directory}/{marker}"):
            disk.remove(f"{directory}/{marker}")
