"""All logs of a node, in all its log directories.

A directory that fails goes offline with its logs; the others live on. What a directory holds beside
its partitions (checkpoints, the marker of a clean shutdown) is read and written here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from penstock import limits
from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import METADATA_TOPIC, TopicPartition
from penstock.log import names
from penstock.log.checkpoint import Checkpoints, offsets_text
from penstock.log.compaction.run import Compactions
from penstock.log.directory import LogDirectory, unless_offline
from penstock.log.files import OpenFiles
from penstock.log.flush import cutting, sync_log
from penstock.log.log import Log
from penstock.log.moving import Moves
from penstock.log.open import Found, create_log, open_log, write_topic_id
from penstock.world import World

logger = logging.getLogger(__name__)

ConfigOf = Callable[[TopicPartition], LogConfig]


class LogStore:
    """The logs of a node. `open` it, and `close` it for a clean shutdown."""

    def __init__(
        self,
        world: World,
        directories: list[LogDirectory],
        *,
        open_files: int = limits.MAX_OPEN_LOG_FILES,
    ) -> None:
        self.directories = directories
        self.logs: dict[TopicPartition, Log] = {}
        # Partitions whose files are damaged, with the reason: they are not served, and nothing of
        # them is changed.
        self.damaged: dict[TopicPartition, str] = {}
        # The broker epoch of the last shutdown by directory; None where it was not clean (KIP-966).
        self.clean_epochs: dict[str, int | None] = {}
        # Told of every directory that goes offline.
        self.on_failure: Callable[[LogDirectory], None] = lambda _directory: None
        self._world = world
        self._disk = world.disk
        self._files = OpenFiles(world.disk, open_files)
        self._doomed: list[tuple[float, str]] = []
        # Those of which the recovery points on disk still tell.
        self._deleted: set[TopicPartition] = set()
        self.checkpoints = Checkpoints(world)
        # Where a partition that is not there yet is wanted.
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        # Held by a truncation, and by the last step of a move: one at a time.
        self.cut_lock = asyncio.Lock()
        self.moves = Moves(self, world, self._files)
        self.compactions = Compactions(self, world)

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    # Opening

    def prepare(self) -> None:
        """Takes the directories for this process, and reads how its last life ended. One that
        cannot be used is offline."""
        for directory in self.directories:
            directory.on_failure = lambda failed: self.on_failure(failed)
            try:
                directory.take(self._disk)
                self.clean_epochs[directory.path] = self.checkpoints.take_clean_mark(directory.path)
                self.moves.find_arrived(directory)
            except OSError as error:
                directory.fail("opening", error)

    async def open(self, config_of: ConfigOf) -> None:
        """Opens every log of every directory but the metadata log, which is the quorum's."""
        if not self.clean_epochs:
            self.prepare()
        for directory in self.online:
            try:
                await self._open_directory(directory, config_of)
            except OSError as error:
                directory.fail("opening", error)
        if not self.online:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "no log directory can be used: "
                + "; ".join(str(d.failure) for d in self.directories),
            )
        await self.moves.settle_arrived()

    async def _open_directory(self, directory: LogDirectory, config_of: ConfigOf) -> None:
        epoch = self.clean_epochs[directory.path]
        recovery_points = self.checkpoints.read(directory.path, names.RECOVERY_POINTS)
        starts = self.checkpoints.read(directory.path, names.LOG_STARTS)
        for name in self._disk.list(directory.path):
            path = f"{directory.path}/{name}"
            partition = names.parse_partition_dir(name)
            if names.is_deleted_dir(name):
                self.doom(path, 0)
            elif names.is_future_dir(name):
                logger.warning(
                    (
                        "%s is dropped: the node stopped before the replica had moved there. Ask "
                        "for "
                        "the move again"
                    ),
                    path,
                )
                self.doom(path, 0)
            elif (
                partition is not None
                and partition.topic != METADATA_TOPIC
                and self._disk.is_dir(path)
            ):
                if self.moves.has_left(partition, directory):
                    continue
                start_offset = max(starts.get(partition, 0), self.moves.arrived_at(partition))
                found = Found(epoch is not None, recovery_points.get(partition, 0), start_offset)
                await self._open_log(partition, directory, config_of(partition), found)
        self.compactions.opened(
            directory, self.checkpoints.read(directory.path, names.CLEAN_OFFSETS)
        )

    async def _open_log(
        self, partition: TopicPartition, directory: LogDirectory, config: LogConfig, found: Found
    ) -> None:
        other = self.logs.get(partition)
        if other is not None:
            self.damaged[partition] = (
                f"{partition} lies in two log directories, {other.directory.path} and "
                f"{directory.path}"
            )
            logger.error(
                "%s: the second one is not served. Remove the one that is not needed",
                self.damaged[partition],
            )
            return
        try:
            self.logs[partition] = await open_log(
                partition, directory, self._files, self._world, config, found
            )
        except KafkaError as error:
            self.damaged[partition] = error.message
            logger.error("partition %s is not served: %s", partition, error.message)

    # Partitions

    def create(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        directory: LogDirectory | None = None,
    ) -> Log:
        """A new log, in the directory that has the fewest unless one is named or was asked for
        before."""
        if partition in self.logs or partition in self.damaged:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is there already")
        if not self.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        counts = {
            d.path: sum(log.directory is d for log in self.logs.values()) for d in self.online
        }
        preferred = self.preferred.pop(partition, None)
        chosen = (
            directory
            or (preferred if preferred in self.online else None)
            or min(self.online, key=lambda d: counts[d.path])
        )
        try:
            if (
                partition in self._deleted
                # the recovery point of its former life would make the new log look damaged after a
                # crash
            ):
                self._save_recovery_points_at_once()
            log = create_log(partition, topic_id, chosen, self._files, self._world, config)
        except OSError as error:
            raise chosen.fail(f"creating {partition}", error) from error
        self.logs[partition] = log
        self.compactions.created(partition)
        return log

    def give_topic_id(self, partition: TopicPartition, topic_id: UUID) -> None:
        """To a log that was found without one: the file that says it may not have been synced when
        the power failed."""
        log = self.logs[partition]
        log.topic_id = topic_id
        try:
            write_topic_id(self._disk, log)
        except OSError as error:
            raise log.directory.fail(f"writing the topic id of {partition}", error) from error

    def delete(self, partition: TopicPartition) -> None:
        """Takes a log out of service at once; its files go after file.delete.delay.ms."""
        log = self.logs.pop(partition)
        log.flushing.abandoned = True
        self._deleted.add(partition)
        self.moves.forget(partition)
        self.set_aside(partition, log.directory, log.config.file_delete_delay_ms)

    def set_aside(self, partition: TopicPartition, directory: LogDirectory, delay_ms: int) -> None:
        """What a directory holds of a partition is not there any more for the next start, and goes
        after a delay."""
        path = f"{directory.path}/{partition}"
        suffix = f".{self._world.rng.uuid().hex}{names.DELETE_DIR_SUFFIX}"
        doomed = f"{directory.path}/{str(partition)[: 255 - len(suffix)]}{suffix}"
        self._files.forget_under(path)
        try:
            self._disk.rename(path, doomed)
        except OSError as error:
            raise directory.fail(f"deleting {partition}", error) from error
        self.doom(doomed, delay_ms)

    async def truncate(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Cuts logs back. Nothing may be appended to them until it returns.

        The recovery points on disk are lowered first, since recovery takes a log that ends below
        its point for damaged.
        """
        async with self.cut_lock:
            logs = [
                (self.logs[partition], offset)
                for partition, offset in offsets.items()
                if partition in self.logs
            ]
            cut = [log for log, offset in logs if offset < log.end_offset]
            await self._truncate(cut, offsets)

    async def _truncate(self, cut: list[Log], offsets: Mapping[TopicPartition, int]) -> None:
        with contextlib.ExitStack() as held:
            for log in cut:
                held.enter_context(log.flushing.held_at(log.batch_start(offsets[log.partition])))
            if cut:
                await self.save_recovery_points()
            await self._lower_clean_offsets({log: offsets[log.partition] for log in cut})
            for log in cut:
                # First the segments behind, then within one, so that a crash in between leaves no
                # hole.
                await self._cut(log, log.truncate_to, log.segment_end(offsets[log.partition]))
                await self._cut(log, log.truncate_to, offsets[log.partition])

    async def restart(self, partition: TopicPartition, offset: int) -> None:
        """Empties a log, which goes on from an offset: a follower whose leader no longer has the
        records where it stopped."""
        async with self.cut_lock:
            log = self.logs.get(partition)
            if log is None:
                return
            with log.flushing.held_at(0):
                await self.save_recovery_points()
                await self._lower_clean_offsets({log: 0})
                await self._cut(log, log.restart_at, offset)

    async def _lower_clean_offsets(self, offsets: Mapping[Log, int]) -> None:
        """On disk before the cut: what is appended after it must not be taken for compacted."""
        lowered = [
            (log, offset)
            for log, offset in offsets.items()
            if log.clean_offset is not None and log.clean_offset > offset
        ]
        for log, offset in lowered:
            log.clean_offset = offset
        if lowered:
            await self.compactions.save()

    async def _cut(self, log: Log, cut: Callable[[int], None], offset: int) -> None:
        if log.flushing.abandoned:
            return
        try:
            with cutting(self._disk, log.path):
                cut(offset)
                await self._world.offload.thread(
                    sync_log, self._disk, log.path, [log.active.file], [log.path]
                )
        except OSError as error:
            # A partition that is deleted meanwhile takes its files with it.
            if not log.flushing.abandoned:
                raise log.directory.fail(f"truncating {log.partition}", error) from error

    # Upkeep

    def retain(self, high_watermarks: Mapping[TopicPartition, int]) -> int:
        """Lets go of segments that are too old or too many. Gives their number."""
        count = 0
        for partition in [partition for partition in self.logs if partition in high_watermarks]:
            log = self.logs[partition]
            with unless_offline(log.directory):
                number = log.expired(high_watermarks[partition], self._world.clock.now_ms())
                for path in log.retire(number):
                    self.doom(path, log.config.file_delete_delay_ms)
                count += number
        return count

    def expire_producers(self, expiration_ms: int) -> None:
        """producer.id.expiration.ms: producers that were silent for so long are forgotten."""
        for log in self.logs.values():
            log.producers.expire(self._world.clock.now_ms(), expiration_ms)

    def doom(self, path: str, delay_ms: int) -> None:
        """A file or a tree that `remove_doomed` removes after a delay."""
        self._doomed.append((self._world.clock.monotonic() + delay_ms / 1000, path))

    async def close_files(self) -> None:
        """Off the loop: the last reference goes in a thread."""
        forgotten = self._files.take_forgotten()
        if forgotten:
            await self._world.offload.thread(forgotten.clear)

    async def remove_doomed(self) -> None:
        """Removes files whose time has come, off the loop: a large one takes long."""
        now = self._world.clock.monotonic()
        due = [path for at, path in self._doomed if at <= now]
        self._doomed = [(at, path) for at, path in self._doomed if at > now]
        for path in due:
            directory = next(d for d in self.directories if path.startswith(d.path + "/"))
            try:
                remove = self._disk.remove_tree if self._disk.is_dir(path) else self._disk.remove
                await self._world.offload.thread(remove, path)
            except FileNotFoundError:
                # a segment of a partition that was deleted or moved since: it goes with its
                # directory, under another name
                pass
            except OSError as error:
                directory.fail(f"removing {path}", error)

    async def flush_wanted(self) -> None:
        """Syncs the logs that sealed a segment, or whose flush.ms has passed."""
        await self.close_files()
        for log in list(self.logs.values()):
            if log.flushing.requested or log.flushing.due():
                try:
                    await log.flushing.all()
                except KafkaError:
                    # The directory has said so itself; it may be another one by now, and the log
                    # deleted.
                    if log.directory.failure is None and not log.flushing.abandoned:
                        raise

    async def write_back(self) -> None:
        """Begins to write out what logs have grown by. Left to itself the kernel waits long, and
        then makes writers wait: the loop."""
        for log in list(self.logs.values()):
            segment = log.active
            start, length = segment.written_back, segment.size - segment.written_back
            if length >= limits.WRITE_BACK_BYTES:
                segment.written_back = segment.size
                try:
                    await self._world.offload.thread(segment.file.write_back, start, length)
                except OSError as error:
                    log.directory.fail(f"writing out {log.partition}", error)

    async def save_recovery_points(self) -> None:
        untold: set[TopicPartition] | None = None
        while (
            untold is None or self._deleted - untold
        ):  # some were deleted while the points were written
            untold = set(self._deleted)
            await self.checkpoints.save(
                names.RECOVERY_POINTS, self._by_directory(), lambda log: log.flushing.recovery_point
            )
        self._deleted -= untold

    def _save_recovery_points_at_once(self) -> None:
        for directory, logs in self._by_directory():
            text = offsets_text([(log.partition, log.flushing.recovery_point) for log in logs])
            self._disk.replace(f"{directory.path}/{names.RECOVERY_POINTS}", text)

    async def save_start_offsets(self) -> None:
        await self.checkpoints.save(
            names.LOG_STARTS, self._by_directory(), lambda log: log.start_offset
        )

    async def save_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        await self.checkpoints.save(
            names.HIGH_WATERMARKS,
            self._by_directory(),
            lambda log: high_watermarks.get(log.partition, 0),
        )

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for directory in self.online:
            found |= self.checkpoints.read(directory.path, names.HIGH_WATERMARKS)
        return found

    def _by_directory(self) -> list[tuple[LogDirectory, list[Log]]]:
        return [
            (directory, [log for log in self.logs.values() if log.directory is directory])
            for directory in self.online
        ]

    async def close(self, broker_epoch: int = -1) -> None:
        """A clean shutdown: everything on disk, and a marker in each directory that says so."""
        for log in self.logs.values():
            with unless_offline(log.directory):
                await log.flushing.all()
                log.save()
        await self.save_recovery_points()
        await self.save_start_offsets()
        for directory in self.online:
            await self.checkpoints.mark_clean(directory, broker_epoch)
        for log in self.logs.values():
            self._files.forget_under(log.path)
        for directory in self.directories:
            directory.let_go()
