"""Snapshots of the metadata: files that stand for everything before an offset, in Kafka's format
(KIP-630).

`<offset>-<epoch>.checkpoint` lies beside the segments of the metadata log: a header, the image's
records in batches, a footer. A file gets its name when it is whole and synced; one that is half
written ends in `.part` and is ignored. Never knows who leads.
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
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.protocol.internal.control_records import (
    ControlType,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    encode_control_key,
    encode_control_value,
)
from penstock.protocol.internal.metadata_records import decode_record, encode_record
from penstock.raft.log_view import OffsetAndEpoch
from penstock.records.batch import batches, crc_matches
from penstock.records.build import NewRecord, build_batch
from penstock.records.record import records_of
from penstock.world import Disk, File, World

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART = ".part"
# Records in one batch of a snapshot: building it takes a few milliseconds, and the loop goes on in
# between.
_BATCH_RECORDS = 500
# How many stay: the log goes back to the older one, so that a replica that is a little behind needs
# no snapshot.
KEPT = 2

_WRITING, _READING = "writing a snapshot of the metadata", "reading a snapshot of the metadata"


class Snapshots:
    """Those in one directory, oldest first."""

    def __init__(self, world: World, env: LogDirectory, directory: str) -> None:
        self.all: list[OffsetAndEpoch] = []
        self._world = world
        # Where it lies: offline from the first error of the disk on.
        self._env = env
        self._disk = world.disk
        self._directory = directory
        # Numbers files under way: the same snapshot may be fetched anew while an earlier attempt is
        # not over yet.
        self._parts = 0

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return self.all[-1] if self.all else None

    def open(self) -> None:
        """Finds what is whole, and removes what is not."""
        for name in self._disk.list(self._directory):
            match = _NAME.fullmatch(name)
            if match:
                self.all.append(OffsetAndEpoch(int(match[1]), int(match[2])))
            elif name.endswith(_PART):
                self._disk.remove(f"{self._directory}/{name}")
        self.all.sort()

    def path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self._directory}/{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"

    # Writing

    async def write(self, image: MetadataImage, snapshot: OffsetAndEpoch, timestamp: int) -> None:
        """In pieces, while the node goes on: an image never changes."""
        part = self.begin(snapshot)
        position, offset = 0, 0
        for batch, count in _batches(image, snapshot.epoch, timestamp):
            framed = bytearray(batch)
            framed[0:8] = offset.to_bytes(8, "big")
            position, offset = position + self.add(part, framed, position), offset + count
            await asyncio.sleep(0)
        await self.finish(snapshot, part)

    def begin(self, snapshot: OffsetAndEpoch) -> File:
        """A file to be filled, and then finished."""
        self._parts += 1
        with self._env.failing(_WRITING):
            return self._disk.open(f"{self.path(snapshot)}.{self._parts}{_PART}", create=True)

    def add(self, part: File, data: Buffer, position: int) -> int:
        """How much was written: all of it."""
        with self._env.failing(_WRITING):
            return part.pwrite(data, position)

    async def finish(self, snapshot: OffsetAndEpoch, part: File) -> None:
        with self._env.failing(_WRITING):
            await self._world.offload.thread(
                _publish, self._disk, part, self.path(snapshot), self._directory
            )
        if snapshot not in self.all:
            self.all = sorted([*self.all, snapshot])

    async def remove(self, snapshots: list[OffsetAndEpoch]) -> None:
        self.all = [snapshot for snapshot in self.all if snapshot not in snapshots]
        if not snapshots:
            return
        with self._env.failing("removing snapshots of the metadata"):
            await self._world.offload.thread(
                _remove,
                self._disk,
                [self.path(snapshot) for snapshot in snapshots],
                self._directory,
            )

    # Reading

    def size(self, snapshot: OffsetAndEpoch) -> int:
        with self._env.failing(_READING):
            return self._disk.size(self.path(snapshot))

    def read(self, snapshot: OffsetAndEpoch, position: int, length: int) -> bytes:
        with (
            self._env.failing(_READING),
            contextlib.closing(self._disk.open(self.path(snapshot))) as file,
        ):
            return file.pread(length, position)

    async def load(self, snapshot: OffsetAndEpoch) -> MetadataImage:
        """The image that it holds. KafkaError where it is damaged: nothing else tells what it
        told."""
        with self._env.failing(_READING):
            data = await self._world.offload.thread(self._disk.read, self.path(snapshot))
        image = MetadataImage.empty()
        position = 0
        for position, header in batches(data):
            if not crc_matches(data, position, header):
                raise self._damaged(
                    snapshot, f"the checksum of the batch at position {position} does not match"
                )
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
            "Remove the metadata directory's content and format it again to fetch everything "
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
    """Blocks."""
    part.sync()
    part.close()
    disk.rename(part.path, path)
    disk.sync_dir(directory)


def _remove(disk: Disk, paths: list[str], directory: str) -> None:
    for path in paths:
        if disk.exists(path):
            disk.remove(path)
    disk.sync_dir(directory)


def difference(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """What a snapshot changed, as if its records had been replayed."""
    ids = dict.fromkeys([*before.topic_names, *after.topic_names])
    changes = {
        topic_id: (before.topic_by_id(topic_id), after.topic_by_id(topic_id)) for topic_id in ids
    }
    configs = dict.fromkeys([*before.configs, *after.configs])
    brokers = dict.fromkeys([*before.brokers, *after.brokers])
    return MetadataDelta(
        {topic_id: (old, new) for topic_id, (old, new) in changes.items() if old != new},
        frozenset(
            resource
            for resource in configs
            if before.configs.get(resource) != after.configs.get(resource)
        ),
        frozenset(
            broker for broker in brokers if before.brokers.get(broker) != after.brokers.get(broker)
        ),
    )
