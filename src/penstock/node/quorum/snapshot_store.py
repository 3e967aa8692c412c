"""Metadata snapshots on disk, in Kafka's format (KIP-630).

`<end offset>-<epoch>.checkpoint` is stored next to the segments of the metadata log: a header
record, the records of the image in batches, a footer record. A file gets this name once it is
complete and synced. Until then its name ends in `.part`; `open` removes such files (rule 18).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from itertools import islice

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import Buffer
from penstock.log.directory import LogDirectory
from penstock.metadata.image import MetadataImage
from penstock.protocol.internal.control_records import (
    ControlType,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    encode_control_key,
    encode_control_value,
)
from penstock.protocol.internal.metadata_records import decode_record, encode_record
from penstock.raft.log import OffsetAndEpoch
from penstock.records.batch import batches, crc_matches
from penstock.records.build import NewRecord, build_batch
from penstock.records.record import records_of
from penstock.world import Disk, File, World

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART = ".part"
# Records per batch of a snapshot. Building a batch takes a few milliseconds; the event loop runs in
# between.
_BATCH_RECORDS = 500
# The log starts at the oldest retained snapshot, so that a replica that is slightly behind needs no
# snapshot.
RETAINED_SNAPSHOTS = 2

_WRITING, _READING = "writing a metadata snapshot", "reading a metadata snapshot"


class SnapshotStore:
    """The snapshots in `path`; `all` has their ids, oldest first.

    The first disk error takes `log_directory` offline.
    """

    def __init__(self, world: World, log_directory: LogDirectory, path: str) -> None:
        self.all: list[OffsetAndEpoch] = []
        self._world = world
        self._log_directory = log_directory
        self._disk = world.disk
        self._path = path
        # Numbers the partial files: a download may start while an earlier one of the same snapshot
        # is not finished.
        self._part_count = 0

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return self.all[-1] if self.all else None

    def open(self) -> None:
        """List complete snapshots and remove partial ones."""
        for name in self._disk.list(self._path):
            match = _NAME.fullmatch(name)
            if match:
                self.all.append(OffsetAndEpoch(int(match[1]), int(match[2])))
            elif name.endswith(_PART):
                self._disk.remove(f"{self._path}/{name}")
        self.all.sort()

    def path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self._path}/{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"

    # Writing

    async def write(self, image: MetadataImage, snapshot: OffsetAndEpoch, timestamp: int) -> None:
        """Write a snapshot of `image`, yielding to the event loop after each batch."""
        part = self.begin(snapshot)
        position, offset = 0, 0
        for batch, count in _batches(image, snapshot.epoch, timestamp):
            framed = bytearray(batch)
            framed[0:8] = offset.to_bytes(8, "big")
            position, offset = position + self.add(part, framed, position), offset + count
            await asyncio.sleep(0)
        await self.finish(snapshot, part)

    def begin(self, snapshot: OffsetAndEpoch) -> File:
        """Create a partial file; `add` fills it and `finish` publishes it."""
        self._part_count += 1
        with self._log_directory.failing(_WRITING):
            return self._disk.open(f"{self.path(snapshot)}.{self._part_count}{_PART}", create=True)

    def add(self, part: File, data: Buffer, position: int) -> int:
        """Write all of `data` and return its length."""
        with self._log_directory.failing(_WRITING):
            return part.pwrite(data, position)

    async def finish(self, snapshot: OffsetAndEpoch, part: File) -> None:
        with self._log_directory.failing(_WRITING):
            await self._world.offload.thread(
                _publish, self._disk, part, self.path(snapshot), self._path
            )
        if snapshot not in self.all:
            self.all = sorted([*self.all, snapshot])

    async def remove(self, snapshots: list[OffsetAndEpoch]) -> None:
        self.all = [snapshot for snapshot in self.all if snapshot not in snapshots]
        if not snapshots:
            return
        with self._log_directory.failing("removing snapshots of the metadata"):
            await self._world.offload.thread(
                _remove,
                self._disk,
                [self.path(snapshot) for snapshot in snapshots],
                self._path,
            )

    # Reading

    def size(self, snapshot: OffsetAndEpoch) -> int:
        with self._log_directory.failing(_READING):
            return self._disk.size(self.path(snapshot))

    def read(self, snapshot: OffsetAndEpoch, position: int, length: int) -> bytes:
        with (
            self._log_directory.failing(_READING),
            contextlib.closing(self._disk.open(self.path(snapshot))) as file,
        ):
            return file.pread(length, position)

    async def load(self, snapshot: OffsetAndEpoch) -> MetadataImage:
        """Return the image of a snapshot. Raises KafkaError if the file is damaged."""
        with self._log_directory.failing(_READING):
            data = await self._world.offload.thread(self._disk.read, self.path(snapshot))
        image = MetadataImage.empty()
        position = 0
        for position, header in batches(data):
            if not crc_matches(data, position, header):
                raise self._damaged(snapshot, f"the batch at position {position} has a wrong CRC")
            if not header.is_control:
                records = [
                    decode_record(record.value or b"")
                    for record in records_of(data, header, position)
                ]
                image, _delta = image.replay(records, snapshot.offset - 1)
                await asyncio.sleep(0)
            position += header.size
        if position != len(data):
            raise self._damaged(
                snapshot, f"it ends in the middle of a batch at position {position}"
            )
        return image.replay((), snapshot.offset - 1)[0]

    def _damaged(self, snapshot: OffsetAndEpoch, problem: str) -> KafkaError:
        hint = (
            "Empty the metadata directory and format it again: the node then fetches all metadata "
            "from the other controllers"
        )
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path(snapshot)} is damaged: {problem}. {hint}"
        )


def _batches(image: MetadataImage, epoch: int, timestamp: int) -> Iterator[tuple[bytes, int]]:
    yield (
        _control(
            ControlType.SNAPSHOT_HEADER,
            SnapshotHeaderRecord(last_contained_log_timestamp=timestamp),
            epoch,
            timestamp,
        ),
        1,
    )
    records = image.records()
    while chunk := [
        NewRecord(None, encode_record(record), (), timestamp)
        for record in islice(records, _BATCH_RECORDS)
    ]:
        yield build_batch(chunk, leader_epoch=epoch), len(chunk)
    yield _control(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), epoch, timestamp), 1


def _control(kind: ControlType, value: object, epoch: int, timestamp: int) -> bytes:
    record = NewRecord(encode_control_key(kind), encode_control_value(value), (), timestamp)
    return build_batch([record], control=True, leader_epoch=epoch)


def _publish(disk: Disk, part: File, path: str, directory: str) -> None:
    """Sync the partial file, then give it its name. Runs in a thread."""
    part.sync()
    part.close()
    disk.rename(part.path, path)
    disk.sync_dir(directory)


def _remove(disk: Disk, paths: list[str], directory: str) -> None:
    for path in paths:
        if disk.exists(path):
            disk.remove(path)
    disk.sync_dir(directory)
