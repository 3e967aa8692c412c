"""Replicas on their way from one log directory of a node to another, served all the while.

A future log in the target directory, `topic-0.<uuid>-future`, is filled with pieces of the log.
When it has caught up its directory takes the partition's name, and in the same step the `Log` goes
on in it: whoever holds the `Log` notices nothing. What a crash leaves:

- before that step, the log where it was, and a future directory, which is dropped at the next
  start;
- after it, two directories of the partition's name, until the new name is on disk and the old
  directory is set aside. A file in the new one (`.penstock_moved`) says that it is the right one.
  It is there before the step, and goes last.

It must never know who asked for a move, nor why.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock import limits
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.log import names
from penstock.log.directory import LogDirectory, unless_offline
from penstock.log.files import FileRange, OpenFiles
from penstock.log.log import Log
from penstock.log.open import create_log
from penstock.records.batch import batches
from penstock.world import World

if TYPE_CHECKING:
    from penstock.log.store import LogStore

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Move:
    """One log, and the one that it will go on in."""

    log: Log
    future: Log
    # Of the log, when the copy began: after another cut it begins anew.
    cuts: int
    unsynced_bytes: int = 0

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    @property
    def start(self) -> int:
        """Where the batch begins that holds the first offset of the log."""
        return self.log.batch_start(self.log.start_offset)

    def next_piece(self, size: int) -> FileRange | None:
        return self.log.read(
            max(self.future.end_offset, self.log.start_offset), size, below=self.log.end_offset
        )


class Moves:
    """The moves of a store. `begin` one, and `run` it to its end."""

    def __init__(self, store: LogStore, world: World, files: OpenFiles) -> None:
        self.under_way: dict[TopicPartition, Move] = {}
        self._store = store
        self._world = world
        self._disk = world.disk
        self._files = files
        # Copying is the disk's work: two at once would take no less time.
        self._turn = asyncio.Lock()
        # Replicas with the word that they have moved: where they are, and where they were, if that
        # is still there.
        self._arrived: dict[TopicPartition, LogDirectory] = {}
        self._left: dict[TopicPartition, LogDirectory] = {}

    def begin(self, partition: TopicPartition, directory: LogDirectory) -> Move | None:
        """None where the replica is there, or on its way there, already. A move to anywhere else
        ends."""
        log, move = self._store.logs[partition], self.under_way.get(partition)
        if move is not None and move.future.directory is not directory:
            self._drop(move)
            move = None
        if move is not None or log.directory is directory:
            return None
        if len(self._store.online) < len(self._store.directories):
            # As in Kafka: nobody knows what of this partition lies in the one that is offline.
            message = f"{partition} cannot move while a log directory is offline"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        name = names.future_dir(partition, self._world.rng.uuid())
        start = log.batch_start(log.start_offset)
        try:
            future = create_log(
                partition,
                log.topic_id,
                directory,
                self._files,
                self._world,
                log.config,
                start,
                name,
            )
        except OSError as error:
            raise directory.fail(f"creating {name}", error) from error
        move = self.under_way[partition] = Move(log, future, log.cuts)
        return move

    async def run(self, move: Move) -> None:
        """Returns when the replica has moved, or will not any more: the reason is in the log then,
        and the replica stays where it is."""
        async with self._turn:
            try:
                # What the target says of an earlier stay of this partition would be taken for a
                # word on this one.
                await self._store.save_recovery_points()
                await self._store.save_start_offsets()
                while self._is_wanted(move):
                    await self._catch_up(move)
                    if await self._take_last_step(move):
                        logger.info("%s has moved to %s", move.partition, move.log.path)
                        await self._store.close_files()
                        await self._settle(move.log)
            except KafkaError as error:
                if self._is_wanted(move):
                    logger.error(
                        "%s stays in %s: it cannot move: %s",
                        move.partition,
                        move.log.directory.path,
                        error.message,
                    )
                    self._drop(move)

    def forget(self, partition: TopicPartition) -> None:
        """The partition is deleted, and with it what there is of it in other directories."""
        if partition in self.under_way:
            self._drop(self.under_way[partition])
        self._set_left_aside(partition, 0)

    def _is_wanted(self, move: Move) -> bool:
        return self.under_way.get(move.partition) is move

    def _drop(self, move: Move) -> None:
        del self.under_way[move.partition]
        move.future.flushing.abandoned = True
        self._files.forget_under(move.future.path)
        self._store.doom(move.future.path, 0)

    # Copying

    async def _catch_up(self, move: Move) -> None:
        """Returns at a moment when less than a piece is left to copy, or the move is not wanted any
        more."""
        log, future = move.log, move.future
        while self._is_wanted(move):
            if move.cuts != log.cuts or (
                log.start_offset > future.end_offset and move.start > future.end_offset
            ):
                move.cuts = log.cuts
                future.restart_at(move.start)
            size = min(limits.MOVE_PIECE_BYTES, log.config.segment_bytes)
            piece = move.next_piece(size)
            if piece is None or (len(piece) < size and future.end_offset >= log.active.base_offset):
                return
            try:
                data = await self._world.offload.thread(piece.read)
            except OSError as error:
                raise log.directory.fail(f"reading {move.partition}", error) from error
            if self._is_wanted(move) and move.cuts == log.cuts:
                future.config = log.config
                future.append_as_follower(_whole_batches(data, piece))
                await self._sync_now_and_then(move, len(data))

    def _copy_rest(self, move: Move) -> None:
        """On the loop, since with every wait more may be appended. It was appended just now, and is
        in the page cache."""
        while (piece := move.next_piece(limits.MOVE_PIECE_BYTES)) is not None:
            try:
                data = piece.read()
            except OSError as error:
                raise move.log.directory.fail(f"reading {move.partition}", error) from error
            move.future.append_as_follower(_whole_batches(data, piece))

    async def _sync_now_and_then(self, move: Move, copied: int) -> None:
        move.unsynced_bytes += copied
        if move.unsynced_bytes >= limits.MOVE_UNSYNCED_BYTES:
            move.unsynced_bytes = 0
            await move.future.flushing.all()

    # The last step

    async def _take_last_step(self, move: Move) -> bool:
        """False where it could not be taken yet."""
        log, future = move.log, move.future
        async with self._store.cut_lock:
            # What were synced in the old place meanwhile would have to be synced in the new one
            # too, and so on without end.
            with log.flushing.held_at(log.flushing.recovery_point):
                if not await self._has_all(move):
                    return False
                await future.flushing.all()
                restarts = future.cuts
                if (
                    not await self._mark(move)
                    or not await self._has_all(move)
                    or restarts != future.cuts
                ):
                    return False
                self._exchange(move)
        return True

    async def _has_all(self, move: Move) -> bool:
        """True at a moment when the two logs hold the same. Not where appends outrun the copy, or
        the move is not wanted any more."""
        try:
            async with asyncio.timeout(limits.MOVE_LAST_STEP_SECONDS):
                await self._catch_up(move)
        except TimeoutError:
            return False
        if self._is_wanted(move):
            self._copy_rest(move)
        return self._is_wanted(move)

    async def _mark(self, move: Move) -> bool:
        """Says that the copy is the right one, and syncs its directory. The log's start goes with
        it: checkpoints come later."""
        marker, text = f"{move.future.path}/{names.MOVED}", b"%d\n" % move.log.start_offset
        try:
            await self._world.offload.thread(self._disk.replace, marker, text)
        except OSError as error:
            if not self._is_wanted(move):
                return False
            raise move.future.directory.fail(f"moving {move.partition}", error) from error
        return True

    def _exchange(self, move: Move) -> None:
        partition, log, future = move.partition, move.log, move.future
        path = f"{future.directory.path}/{partition}"
        try:
            self._disk.rename(future.path, path)
        except OSError as error:
            raise future.directory.fail(f"moving {partition}", error) from error
        del self.under_way[partition]
        self._left[partition] = log.directory
        self._files.forget_under(future.path)
        self._files.forget_under(log.path)
        log.relocate(future, path)

    # Afterwards

    async def _settle(self, log: Log) -> None:
        """What lies in the old place goes once the new name is on disk, and the word on which is
        right once the old name is not."""
        left = self._left.get(log.partition)
        if not await self._sync(log.directory):
            return
        self._set_left_aside(log.partition, log.config.file_delete_delay_ms)
        if left is not None and not await self._sync(left):
            return
        await self._store.save_recovery_points()
        await self._store.save_start_offsets()
        nobody_missing = len(self._store.online) == len(self._store.directories)
        if nobody_missing and self._store.logs.get(log.partition) is log:
            try:
                self._disk.remove(f"{log.path}/{names.MOVED}")
            except OSError as error:
                log.directory.fail(f"moving {log.partition}", error)

    async def _sync(self, directory: LogDirectory) -> bool:
        try:
            await self._world.offload.thread(self._disk.sync_dir, directory.path)
        except OSError as error:
            directory.fail("sync", error)
        return directory.failure is None

    def _set_left_aside(self, partition: TopicPartition, delay_ms: int) -> None:
        left = self._left.pop(partition, None)
        if left is not None:
            with unless_offline(left):
                self._store.set_aside(partition, left, delay_ms)

    # At the next start

    def find_arrived(self, directory: LogDirectory) -> None:
        """Notes the replicas of a directory that have the word that they have moved there. To be
        asked of all before one is opened."""
        for name in self._disk.list(directory.path):
            partition = names.parse_partition_dir(name)
            if partition is not None and self._disk.exists(
                f"{directory.path}/{name}/{names.MOVED}"
            ):
                self._arrived[partition] = directory

    def has_left(self, partition: TopicPartition, directory: LogDirectory) -> bool:
        """Whether what this directory has of a partition is what was left when it moved."""
        if self._arrived.get(partition, directory) is directory:
            return False
        self._left[partition] = directory
        return True

    def arrived_at(self, partition: TopicPartition) -> int:
        """The start of a log when it moved; 0 where it did not, or where that is not known."""
        directory = self._arrived.get(partition)
        text = (
            self._disk.read(f"{directory.path}/{partition}/{names.MOVED}").strip()
            if directory
            else b""
        )
        return int(text) if text.isdigit() else 0

    async def settle_arrived(self) -> None:
        for partition in list(self._arrived):
            if partition in self._store.logs:
                await self._settle(self._store.logs[partition])
        self._arrived.clear()


def _whole_batches(data: bytes, piece: FileRange) -> memoryview:
    """The last batch of a piece may be cut."""
    end = max((position + header.size for position, header in batches(data)), default=0)
    if end == 0:
        message = (
            f"{piece.file.path} is damaged: there is no whole batch in {len(data)} bytes at "
            f"{piece.position}"
        )
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
    return memoryview(data)[:end]
