"""Moves of replicas from one log directory of a node to another, while they are served.

A future log in the target directory, `topic-0.<uuid>-future`, receives copies of the log's batches.
When it has caught up, its directory takes the partition's name, and in the same step the `Log`
continues in it: users of the `Log` see no change. What a crash leaves:

- before that step: the log in its old place, and a future directory. The next start opens both, and
  the move continues;
- after it: two directories with the partition's name, until the new name is on disk and the old
  directory is marked as deleted. A file in the new one (`.penstock_moved`) and a file in the old
  one (`.penstock_left`) have the id of the same move: the new one is valid. The files exist before
  the step, and that in the new one is removed last. If it was kept because a disk failed, it says
  nothing about a log that was created under the partition's name later.

Does not know which client requested a move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.log import names
from penstock.log.directory import LogDirectory, unless_offline
from penstock.log.files import FileRange, OpenFiles
from penstock.log.log import Log
from penstock.log.open import CheckpointedOffsets, create_log, open_log
from penstock.records.batch import batches
from penstock.world import World

if TYPE_CHECKING:
    from penstock.log.store import LogStore

logger = logging.getLogger(__name__)

# The truncation count of a copy that must start again.
_COPY_AGAIN = -1
# The digits of the largest offset.
_OFFSET_DIGITS = 19


class _Arrival(NamedTuple):
    """The marker of a replica that moved: the log's start, and the id of the move, which the old
    copy has as well. Markers of earlier versions have no id."""

    start_offset: int
    move_id: bytes


def _parse_arrival(text: bytes) -> _Arrival:
    """Parse a marker. The start is 0 if it is not known."""
    fields = text.split()
    known = bool(fields) and fields[0].isdigit() and len(fields[0]) <= _OFFSET_DIGITS
    return _Arrival(int(fields[0]) if known else 0, fields[1] if len(fields) > 1 else b"")


@dataclass(slots=True, eq=False)
class Move:
    """A log, and the future log that replaces its files."""

    log: Log
    future: Log
    # `Log.truncation_count` when the copy began: the copy starts again when it changes.
    truncation_count: int
    unsynced_bytes: int = 0

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    @property
    def start(self) -> int:
        """The base offset of the batch that holds the first offset of the log."""
        return self.log.batch_start(self.log.start_offset)

    def next_piece(self, size: int) -> FileRange | None:
        return self.log.read(
            max(self.future.end_offset, self.log.start_offset), size, below=self.log.end_offset
        )


class Moves:
    """The moves of a store. `begin` starts a move, and `run` completes it."""

    def __init__(self, store: LogStore, world: World, files: OpenFiles) -> None:
        self.under_way: dict[TopicPartition, Move] = {}
        # How long a copy pauses after so many bytes
        # (replica.alter.log.dirs.io.max.bytes.per.second).
        self.pause_s: Callable[[int], float] = lambda _copied: 0.0
        self._store = store
        self._world = world
        self._disk = world.disk
        self._files = files
        # One copy at a time: two would compete for the same disk.
        self._copying = asyncio.Lock()
        # Replicas that are marked as moved: where they are, and where the old copy is, if it still
        # exists.
        self._arrived: dict[TopicPartition, dict[LogDirectory, _Arrival]] = {}
        self._left: dict[TopicPartition, LogDirectory] = {}
        # Future logs that an earlier process left; see `resume`.
        self._futures: list[Log] = []

    def begin(self, partition: TopicPartition, directory: LogDirectory) -> Move | None:
        """Start a move; return None if the replica is in the directory or moves there already. A
        move to another directory is cancelled."""
        log, move = self._store.logs[partition], self.under_way.get(partition)
        if move is not None and move.future.directory is not directory:
            self._cancel(move)
            move = None
        if move is not None or log.directory is directory:
            return None
        if len(self._store.online) < len(self._store.directories):
            # As in Kafka: the offline directory may have a copy of this partition.
            message = f"{partition} cannot move while a log directory is offline"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        name = names.future_dir(partition, self._world.rng.uuid())
        start = log.batch_start(log.start_offset)
        try:
            log.make_files()
        except OSError as error:
            raise log.directory.fail(f"moving {partition}", error) from error
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
            refusal = directory.fail(f"creating {name}", error)
            if self._disk.is_dir(f"{directory.path}/{name}"):
                # Otherwise the next start would continue a move that was refused.
                with unless_offline(directory):
                    self._store.mark_deleted(partition, directory, 0, f"{directory.path}/{name}")
            raise refusal from error
        move = self.under_way[partition] = Move(log, future, log.truncation_count)
        return move

    async def run(self, move: Move) -> None:
        """Move a replica. On failure the reason is logged and the replica stays where it is."""
        async with self._copying:
            try:
                # Checkpoints of the target may still list an earlier copy of this partition.
                await self._store.offsets.save_recovery_points()
                await self._store.offsets.save_start_offsets()
                while self._is_current(move):
                    await self._catch_up(move, is_paced=True)
                    if await self._switch(move):
                        logger.info("%s moved to %s", move.partition, move.log.path)
                        await self._store.close_files()
                        await self._settle(move.log)
            except KafkaError as error:
                if self._is_current(move):
                    logger.error(
                        "%s stays in %s: the move failed: %s",
                        move.partition,
                        move.log.directory.path,
                        error.message,
                    )
                    self._cancel(move)

    def forget(self, partition: TopicPartition) -> None:
        """Drop the move and the old copies of a deleted partition."""
        if partition in self.under_way:
            self._cancel(self.under_way[partition])
        self._remove_left(partition, 0)

    def _is_current(self, move: Move) -> bool:
        return self.under_way.get(move.partition) is move

    def _cancel(self, move: Move) -> None:
        del self.under_way[move.partition]
        self._discard(move.future)

    def _discard(self, future: Log) -> None:
        """Remove a future log. It is renamed, so that the next start does not continue its move."""
        future.flushing.abandoned = True
        with unless_offline(future.directory):
            self._store.mark_deleted(future.partition, future.directory, 0, future.path)

    # Copying

    async def _catch_up(self, move: Move, *, is_paced: bool = False) -> None:
        """Copy until less than a piece is left, or the move is cancelled. What was appended during
        the last step is copied without pauses."""
        log, future = move.log, move.future
        while self._is_current(move):
            if move.truncation_count != log.truncation_count or (
                log.start_offset > future.end_offset and move.start > future.end_offset
            ):
                move.truncation_count = log.truncation_count
                future.restart_at(move.start)
            size = min(limits.MOVE_PIECE_BYTES, log.config.segment_bytes)
            piece = move.next_piece(size)
            if piece is None or (len(piece) < size and future.end_offset >= log.active.base_offset):
                return
            try:
                data = await self._world.offload.read(piece.read)
            except OSError as error:
                raise log.directory.fail(f"reading {move.partition}", error) from error
            if self._is_current(move) and move.truncation_count == log.truncation_count:
                future.config = log.config
                future.append_as_follower(_whole_batches(data, piece))
                await self._sync_periodically(move, len(data))
                pause_s = self.pause_s(len(data))
                if is_paced and pause_s > 0:
                    await asyncio.sleep(pause_s)

    def _copy_rest(self, move: Move) -> None:
        """Copy the rest synchronously: during an await more could be appended. The rest was just
        appended and is in the page cache."""
        while (piece := move.next_piece(limits.MOVE_PIECE_BYTES)) is not None:
            try:
                data = piece.read()
            except OSError as error:
                raise move.log.directory.fail(f"reading {move.partition}", error) from error
            move.future.append_as_follower(_whole_batches(data, piece))

    async def _sync_periodically(self, move: Move, copied: int) -> None:
        move.unsynced_bytes += copied
        if move.unsynced_bytes >= limits.MOVE_UNSYNCED_BYTES:
            move.unsynced_bytes = 0
            await move.future.flushing.all()

    # The last step

    async def _switch(self, move: Move) -> bool:
        """Switch to the copy. Return False if that is not possible yet."""
        log, future = move.log, move.future
        async with self._store.truncations.lock:
            # Records synced in the old place in the meantime would have to be synced in the new one
            # too, without end.
            with log.flushing.held_at(log.flushing.recovery_point):
                if not await self._has_all(move):
                    return False
                await future.flushing.all()
                restarts = future.truncation_count
                if (
                    not await self._mark(move)
                    or not await self._has_all(move)
                    or restarts != future.truncation_count
                ):
                    return False
                self._rename_future(move)
        return True

    async def _has_all(self, move: Move) -> bool:
        """Return True if both logs have the same records now; False if appends are faster than the
        copy, or the move is cancelled."""
        try:
            async with asyncio.timeout(limits.MOVE_LAST_STEP_SECONDS):
                await self._catch_up(move)
        except TimeoutError:
            return False
        if self._is_current(move):
            self._copy_rest(move)
        return self._is_current(move)

    async def _mark(self, move: Move) -> bool:
        """Mark the log as the old copy and the future log as the valid one, and sync their
        directories. The marker has the log's start, because checkpoints are written later."""
        move_id = self._world.rng.uuid().hex.encode()
        for log, name, text in (
            (move.log, names.LEFT, b"%s\n" % move_id),
            (move.future, names.MOVED, b"%d %s\n" % (move.log.start_offset, move_id)),
        ):
            try:
                await self._world.offload.thread(self._disk.replace, f"{log.path}/{name}", text)
            except OSError as error:
                if not self._is_current(move):
                    return False
                raise log.directory.fail(f"moving {move.partition}", error) from error
        return True

    def _rename_future(self, move: Move) -> None:
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
        """Remove the old copy when the new name is on disk, and the marker when the old name is
        gone."""
        left = self._left.get(log.partition)
        if not await self._sync(log.directory):
            return
        self._remove_left(log.partition, log.config.file_delete_delay_ms)
        if left is not None and not await self._sync(left):
            return
        await self._store.offsets.save_recovery_points()
        await self._store.offsets.save_start_offsets()
        # A directory that is offline may have the old copy.
        all_online = len(self._store.online) == len(self._store.directories)
        if (left is not None or all_online) and self._store.logs.get(log.partition) is log:
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

    def _remove_left(self, partition: TopicPartition, delay_ms: int) -> None:
        left = self._left.pop(partition, None)
        if left is not None:
            with unless_offline(left):
                self._store.mark_deleted(partition, left, delay_ms)

    # At the next start

    async def open_future(
        self,
        partition: TopicPartition,
        directory: LogDirectory,
        name: str,
        config: LogConfig,
        found: CheckpointedOffsets,
    ) -> None:
        """Open the future log of a move that the last shutdown interrupted."""
        try:
            future = await open_log(
                partition, directory, self._files, self._world, config, found, name
            )
        except KafkaError as error:
            logger.warning(
                "removing %s/%s: %s. Request the move again", directory.path, name, error.message
            )
            with unless_offline(directory):
                self._store.mark_deleted(partition, directory, 0, f"{directory.path}/{name}")
        else:
            self._futures.append(future)

    def resume(self) -> None:
        """Continue moves after all logs are open: put them under way. The caller runs them."""
        futures, self._futures = self._futures, []
        for future in futures:
            partition = future.partition
            log = self._store.logs.get(partition)
            if log is None and (
                partition in self._store.damaged
                or len(self._store.online) < len(self._store.directories)
            ):
                logger.warning("keeping %s: the log of %s is not open", future.path, partition)
            elif (
                log is None
                or log.topic_id != future.topic_id
                or log.directory is future.directory
                or partition in self.under_way
            ):
                logger.warning("removing %s: %s does not move there", future.path, partition)
                self._discard(future)
            else:
                count = log.truncation_count if _is_copy(future, log) else _COPY_AGAIN
                self.under_way[partition] = Move(log, future, count)
                logger.info("%s continues to move to %s", partition, future.directory.path)

    async def find_arrived(self, directory: LogDirectory) -> None:
        """Find the replicas of a directory that are marked as moved there; called for all
        directories before a log is opened. The event loop runs between bounded parts."""
        for count, name in enumerate(self._disk.list(directory.path), 1):
            if count % limits.MOVED_LOGS_A_TURN == 0:
                await asyncio.sleep(0)
            partition = names.parse_partition_dir(name)
            marker = f"{directory.path}/{name}/{names.MOVED}"
            if partition is not None and self._disk.exists(marker):
                arrival = _parse_arrival(self._disk.read(marker))
                self._arrived.setdefault(partition, {})[directory] = arrival

    def replaced_by(
        self, partition: TopicPartition, directory: LogDirectory
    ) -> LogDirectory | None:
        """Return the directory to which the copy in this one moved; None if it is not the old copy
        of a move."""
        arrivals = self._arrived.get(partition, {})
        for target, arrival in arrivals.items():
            if target is directory:
                continue
            is_old = (
                arrival.move_id == self._departure(partition, directory)
                if arrival.move_id
                else directory not in arrivals
            )
            if is_old:
                return target
        return None

    def _departure(self, partition: TopicPartition, directory: LogDirectory) -> bytes:
        """Return the id of the last move from a directory."""
        marker = f"{directory.path}/{partition}/{names.LEFT}"
        return self._disk.read(marker).strip() if self._disk.exists(marker) else b""

    def has_left(self, partition: TopicPartition, directory: LogDirectory) -> bool:
        """Return True if this directory has the old copy of a partition that moved. It is not
        opened, and removed when the moved one is settled."""
        if self.replaced_by(partition, directory) is None:
            return False
        self._left[partition] = directory
        return True

    def arrived_at(self, partition: TopicPartition, directory: LogDirectory) -> int:
        """Return the start of a log when it moved to a directory; 0 if it did not move there or the
        start is unknown."""
        arrival = self._arrived.get(partition, {}).get(directory)
        return 0 if arrival is None else arrival.start_offset

    async def settle_arrived(self) -> None:
        for partition, arrivals in list(self._arrived.items()):
            log = self._store.logs.get(partition)
            if log is not None and log.directory in arrivals:
                await self._settle(log)
        self._arrived.clear()


def _is_copy(future: Log, log: Log) -> bool:
    """Return True if a future log has the first records of a log: logs that have the same leader
    epoch at an offset are the same up to there. Compaction may have changed what was copied."""
    epoch, end_offset = log.epochs.end_offset_for(future.epochs.latest, log.end_offset)
    return (
        not log.config.compacts
        and epoch == future.epochs.latest
        and future.end_offset <= end_offset
    )


def _whole_batches(data: bytes, piece: FileRange) -> memoryview:
    """Return the whole batches of a piece; the last one may be cut."""
    end = max((position + header.size for position, header in batches(data)), default=0)
    if end == 0:
        message = (
            f"{piece.file.path} is damaged: there is no whole batch in {len(data)} bytes at "
            f"{piece.position}"
        )
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
    return memoryview(data)[:end]
