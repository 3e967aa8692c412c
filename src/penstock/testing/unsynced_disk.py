"""The machine's file system without syncs: what a test cluster wrote survives its processes, but
not the machine's power. Syncs take most of the time that creating a topic needs."""

from __future__ import annotations

from penstock.world.real import RealDisk, RealFile


class UnsyncedDisk(RealDisk):
    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        file.sync = _do_nothing
        return file

    def sync_dir(self, path: str) -> None:
        """Do nothing: a rename is visible to all processes at once."""


def _do_nothing() -> None: ...
