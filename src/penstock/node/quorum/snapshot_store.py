"""Metadata snapshots on disk (KIP-630). `snapshot_file` has their format.

`<end offset>-<epoch>.checkpoint` is stored next to the segments of the metadata log. A file gets
this name once it is complete, checked and synced. Until then its name ends in `.part` (rule 18). A
damaged file is set aside: its name then ends in `.damaged`. `open` removes both kinds.

`0-0.checkpoint`, which `penstock format` writes, has no metadata but the first voters of a quorum
(KIP-853). It is not in the list of snapshots, and is removed when the log no longer starts at 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import re

from penstock.ids import Buffer
from penstock.limits import FILES_RETRY_S
from penstock.log.directory import LogDirectory, TooManyFiles
from penstock.metadata.image import MetadataImage
from penstock.metadata.replay import Replay
from penstock.node.quorum.snapshot_file import (
    at_offset,
    check_snapshot,
    checked_batches,
    read_checked,
    snapshot_batches,
    snapshot_voters,
)
from penstock.protocol.internal.metadata_records import decode_record
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.voters import VotersEntry
from penstock.records.record import records_of
from penstock.world import Disk, File, World

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART, _DAMAGED = ".part", ".damaged"
BOOTSTRAP = OffsetAndEpoch(0, 0)
# Snapshots that are retained whatever the settings say: one more than in Kafka, so that a damaged
# one can be replaced by the previous one.
RETAINED_SNAPSHOTS = 2

_WRITING, _READING = "writing a metadata snapshot", "reading a metadata snapshot"


class SnapshotStore:
    """The snapshots in `path`; `all` has their ids, oldest first, without those set aside.

    The first disk error takes `log_directory` offline.
    """

    def __init__(
        self,
        world: World,
        log_directory: LogDirectory,
        path: str,
    ) -> None:
        self.all: list[OffsetAndEpoch] = []
        self.has_bootstrap = False
        self._world = world
        self._log_directory = log_directory
        self._disk = world.disk
        self._path = path
        # Numbers the partial files: a download may start while an earlier one of the same snapshot
        # is not finished.
        self._part_count = 0
        # The positions of the batches of snapshots that were served, and their sizes.
        self._positions: dict[OffsetAndEpoch, list[int]] = {}
        self._checking = asyncio.Lock()
        # Held while files are published, removed or set aside.
        self._naming = asyncio.Lock()

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return self.all[-1] if self.all else None

    def open(self) -> None:
        """List complete snapshots; remove partial ones, and those set aside."""
        for name in self._disk.list(self._path):
            match = _NAME.fullmatch(name)
            found = OffsetAndEpoch(int(match[1]), int(match[2])) if match else None
            if found == BOOTSTRAP:
                self.has_bootstrap = True
            elif found is not None:
                self.all.append(found)
            elif name.endswith((_PART, _DAMAGED)):
                self._disk.remove(f"{self._path}/{name}")
        self.all.sort()

    def path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self._path}/{checkpoint_name(snapshot)}"

    # Writing

    async def write(
        self,
        image: MetadataImage,
        snapshot: OffsetAndEpoch,
        timestamp: int,
        voters: VotersEntry | None = None,
    ) -> None:
        """Write a snapshot of `image`, yielding to the event loop after each batch."""
        part = await self.begin(snapshot)
        position, offset = 0, 0
        for batch, count in snapshot_batches(image, snapshot.epoch, timestamp, voters):
            framed = at_offset(batch, offset)
            position, offset = position + self.add(part, framed, position), offset + count
            await asyncio.sleep(0)
        await self.finish(snapshot, part)

    async def begin(self, snapshot: OffsetAndEpoch) -> File:
        """Create a partial file; `add` fills it, and `finish` publishes it."""
        self._part_count += 1
        path = f"{self.path(snapshot)}.{self._part_count}{_PART}"
        return await self._open(path, _WRITING, create=True)

    def add(self, part: File, data: Buffer, position: int) -> int:
        """Write all of `data` and return its length."""
        with self._log_directory.failing(_WRITING):
            return part.pwrite(data, position)

    def read_part(self, part: File, length: int) -> bytes:
        """Return the first bytes of a partial file."""
        with self._log_directory.failing(_READING):
            return part.pread(length, 0)

    async def discard(self, part: File) -> None:
        """Remove a partial file that will not be finished."""
        with self._log_directory.failing(_WRITING):
            part.close()
            await self._world.offload.thread(self._disk.remove, part.path)

    async def finish(self, snapshot: OffsetAndEpoch, part: File) -> None:
        """Check a partial file and publish it. Raises SnapshotDamaged."""
        await self._check(part.path)
        async with self._naming:
            with self._log_directory.failing(_WRITING):
                await self._world.offload.thread(
                    _publish, self._disk, part, self.path(snapshot), self._path
                )
            self._forget([snapshot])
            self.all = sorted([*self.all, snapshot])

    async def remove(self, snapshots: list[OffsetAndEpoch]) -> None:
        if not snapshots:
            return
        async with self._naming:
            self._forget(snapshots)
            with self._log_directory.failing("removing snapshots of the metadata"):
                paths = [self.path(snapshot) for snapshot in snapshots]
                await self._world.offload.thread(_remove, self._disk, paths, self._path)

    async def remove_bootstrap(self) -> None:
        """Remove the checkpoint with the first voters: a snapshot has newer ones."""
        if self.has_bootstrap:
            self.has_bootstrap = False
            await self.remove([BOOTSTRAP])

    async def set_aside(self, snapshot: OffsetAndEpoch) -> None:
        """Neither serve nor load a damaged snapshot any more. Its file is renamed."""
        async with self._naming:
            if snapshot not in self.all:
                return
            self._forget([snapshot])
            path = self.path(snapshot)
            with self._log_directory.failing("setting a damaged metadata snapshot aside"):
                await self._world.offload.thread(
                    _rename, self._disk, path, path + _DAMAGED, self._path
                )

    def _forget(self, snapshots: list[OffsetAndEpoch]) -> None:
        self.all = [snapshot for snapshot in self.all if snapshot not in snapshots]
        for snapshot in snapshots:
            self._positions.pop(snapshot, None)

    # Reading

    def size(self, snapshot: OffsetAndEpoch) -> int:
        with self._log_directory.failing(_READING):
            return self._disk.size(self.path(snapshot))

    def modified_ms(self, snapshot: OffsetAndEpoch) -> int:
        with self._log_directory.failing(_READING):
            return self._disk.modified_ms(self.path(snapshot))

    async def check(self, snapshot: OffsetAndEpoch) -> None:
        """Read a whole snapshot. Raises SnapshotDamaged."""
        await self._check(self.path(snapshot))

    async def _check(self, path: str) -> list[int]:
        """Return the positions of the batches, and the size at the end."""
        with (
            contextlib.closing(await self._open(path, _READING)) as file,
            self._log_directory.failing(_READING),
        ):
            return await self._world.offload.read(check_snapshot, file)

    async def read(self, snapshot: OffsetAndEpoch, position: int, length: int) -> tuple[int, bytes]:
        """Return the size of a snapshot, and its bytes from `position` on.

        The snapshot is checked as a whole before it is read for the first time, and its batches
        again when they are read. Raises SnapshotDamaged.
        """
        # Not `_open`: a snapshot may be removed while a node waits for a descriptor.
        with (
            self._log_directory.failing(_READING),
            contextlib.closing(self._disk.open(self.path(snapshot))) as file,
        ):
            async with self._checking:
                positions = self._positions.get(snapshot)
                if positions is None:
                    positions = await self._world.offload.read(check_snapshot, file)
                    self._positions[snapshot] = positions
            if not 0 <= position < positions[-1]:
                return positions[-1], b""
            return positions[-1], await self._world.offload.read(
                read_checked, file, positions, position, length
            )

    async def load(self, snapshot: OffsetAndEpoch) -> MetadataImage:
        """Return the image of a snapshot. Raises SnapshotDamaged."""
        path = self.path(snapshot)
        with (
            contextlib.closing(await self._open(path, _READING)) as file,
            self._log_directory.failing(_READING),
        ):
            positions = await self._world.offload.read(check_snapshot, file)
            data = await self._world.offload.read(file.pread, positions[-1], 0)
        replay = Replay(MetadataImage.empty())
        for position, header in checked_batches(path, data):
            if not header.is_control:
                for record in records_of(data, header, position):
                    replay.replay(decode_record(record.value or b""))
                await asyncio.sleep(0)
        return replay.finish(snapshot.offset - 1)[0]

    async def voters(self, snapshot: OffsetAndEpoch) -> VotersEntry | None:
        """Return the voters of a snapshot; None if it has none (kraft.version 0). Raises
        SnapshotDamaged."""
        with (
            contextlib.closing(await self._open(self.path(snapshot), _READING)) as file,
            self._log_directory.failing(_READING),
        ):
            return await self._world.offload.read(snapshot_voters, file, snapshot.offset - 1)

    async def _open(self, path: str, doing: str, *, create: bool = False) -> File:
        """Open a file. Wait while too many files are open: a node that cannot write or load a
        snapshot must not stop for that."""
        while True:
            try:
                with self._log_directory.failing(doing):
                    return self._disk.open(path, create=create)
            except TooManyFiles:
                await asyncio.sleep(FILES_RETRY_S)


def checkpoint_name(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"


def _publish(disk: Disk, part: File, path: str, directory: str) -> None:
    """Sync the partial file, then give it its name. Runs in a thread."""
    part.sync()
    part.close()
    _rename(disk, part.path, path, directory)


def _rename(disk: Disk, source: str, target: str, directory: str) -> None:
    disk.rename(source, target)
    disk.sync_dir(directory)


def _remove(disk: Disk, paths: list[str], directory: str) -> None:
    for path in paths:
        if disk.exists(path):
            disk.remove(path)
    disk.sync_dir(directory)
