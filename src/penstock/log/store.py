"""All logs of a node, in all its log directories.

A directory that fails goes offline with its logs; the others stay online. The store reads and
writes the files of a directory beside its partitions: checkpoints and the clean shutdown marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from penstock import limits
from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import METADATA_TOPIC, TopicPartition
from penstock.log import names
from penstock.log.checkpoint import Checkpoints
from penstock.log.compaction.run import Compactions
from penstock.log.directory import LogDirectory, TooManyFiles, unless_offline
from penstock.log.due import DueLogs
from penstock.log.expiry import Expiry
from penstock.log.files import OpenFiles, max_open_files
from penstock.log.flush import save_epochs
from penstock.log.log import Log
from penstock.log.moving import Moves
from penstock.log.open import CheckpointedOffsets, create_log, open_log
from penstock.log.saved_offsets import SavedOffsets
from penstock.log.truncation import Truncations
from penstock.world import World

logger = logging.getLogger(__name__)

ConfigOf = Callable[[TopicPartition], LogConfig]


class LogStore:
    """The logs of a node. `open` opens it; `close` shuts it down cleanly."""

    def __init__(
        self,
        world: World,
        directories: list[LogDirectory],
        *,
        open_files: int | None = None,
    ) -> None:
        self.directories = directories
        self.logs: dict[TopicPartition, Log] = {}
        # Partitions whose files are damaged, with the reason. They are not served, and their files
        # are not changed.
        self.damaged: dict[TopicPartition, str] = {}
        # The broker epoch of the last shutdown by directory; None if it was not clean (KIP-966).
        self.clean_epochs: dict[str, int | None] = {}
        self._is_untouched = True
        # Called for every directory that goes offline.
        self.on_failure: Callable[[LogDirectory], None] = lambda _directory: None
        self._world = world
        self._disk = world.disk
        self._files = OpenFiles(
            world.disk, open_files or max_open_files(world.network.max_descriptors())
        )
        # The logs that periodic work looks at.
        self.due = DueLogs()
        self._removals: list[tuple[float, str]] = []
        self.checkpoints = Checkpoints(world)
        self.offsets = SavedOffsets(self, self.checkpoints)
        # The log directory for a partition that is created later (AlterReplicaLogDirs).
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        self.truncations = Truncations(self, world)
        self.moves = Moves(self, world, self._files)
        self.compactions = Compactions(self, world)
        self.expiry = Expiry(self, world)

    @property
    def open_files(self) -> OpenFiles:
        return self._files

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    # Opening

    async def prepare(self) -> None:
        """Lock the directories for this process, and read how the last shutdown ended. A directory
        that cannot be used is offline."""
        for directory in self.directories:
            directory.on_failure = lambda failed: self.on_failure(failed)
            try:
                directory.lock(self._disk)
                self.clean_epochs[directory.path] = self.checkpoints.take_clean_mark(directory.path)
                await self.moves.find_arrived(directory)
            except OSError as error:
                self._open_failed(directory, error)

    @staticmethod
    def _open_failed(directory: LogDirectory, error: OSError) -> None:
        """Continue without the directory. With too many open files the node cannot start: logs that
        it does not open would be created again."""
        refusal = directory.fail("opening", error)
        if directory.failure is None:
            raise refusal from error

    async def open(self, config_of: ConfigOf) -> None:
        """Open every log of every directory except the metadata log, which the quorum opens."""
        if not self.clean_epochs:
            await self.prepare()
        self._is_untouched = False
        began = self._world.clock.monotonic()
        for directory in self.online:
            try:
                await self._open_directory(directory, config_of)
            except OSError as error:
                self._open_failed(directory, error)
        if not self.online:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "no log directory can be used: "
                + "; ".join(str(d.failure) for d in self.directories),
            )
        await self.moves.settle_arrived()
        self.moves.resume()
        self.offsets.opened()
        self.due.counts.opening_s = self._world.clock.monotonic() - began

    async def _open_directory(self, directory: LogDirectory, config_of: ConfigOf) -> None:
        epoch = self.clean_epochs[directory.path]
        offsets = self.offsets.read(directory)
        recovery_points, starts = offsets[names.RECOVERY_POINTS], offsets[names.LOG_STARTS]
        high_watermarks = offsets[names.HIGH_WATERMARKS]
        for name in self._disk.list(directory.path):
            path = f"{directory.path}/{name}"
            partition = names.parse_partition_dir(name)
            if names.is_deleted_dir(name):
                self.remove_later(path, 0)
            elif names.is_stray_dir(name):
                logger.warning(
                    "%s has a log without a replica on this broker. Remove it if it is not needed",
                    path,
                )
            elif (moving := names.parse_future_dir(name)) is not None:
                found = CheckpointedOffsets(epoch is not None, recovery_points.get(moving, 0))
                await self.moves.open_future(moving, directory, name, config_of(moving), found)
            elif (
                partition is not None
                and partition.topic != METADATA_TOPIC
                and self._disk.is_dir(path)
            ):
                if self.moves.has_left(partition, directory):
                    continue
                start_offset = max(
                    starts.get(partition, 0), self.moves.arrived_at(partition, directory)
                )
                found = CheckpointedOffsets(
                    epoch is not None,
                    recovery_points.get(partition, 0),
                    start_offset,
                    high_watermarks.get(partition, 0),
                )
                await self._open_log(partition, directory, config_of(partition), found)
        if epoch is None:
            self.due.counts.recovered_logs += directory.log_count
        if epoch is None and directory.log_count:
            logger.warning(
                "log directory %s was not shut down cleanly: %d logs were recovered from their "
                "recovery points on",
                directory.path,
                directory.log_count,
            )
        self.compactions.opened(directory, offsets[names.CLEAN_OFFSETS])

    async def _open_log(
        self,
        partition: TopicPartition,
        directory: LogDirectory,
        config: LogConfig,
        found: CheckpointedOffsets,
    ) -> None:
        other = self.logs.get(partition)
        if other is not None:
            self.damaged[partition] = (
                f"{partition} is in two log directories, {other.directory.path} and "
                f"{directory.path}"
            )
            logger.error(
                "%s: serving the first. Remove the copy that is not needed",
                self.damaged[partition],
            )
            return
        try:
            self.logs[partition] = await open_log(
                partition, directory, self._files, self._world, config, found, due=self.due
            )
            directory.log_count += 1
        except KafkaError as error:
            self.damaged[partition] = error.message
            logger.error("partition %s is offline: %s", partition, error.message)

    # Partitions

    def create(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        directory: LogDirectory | None = None,
    ) -> Log:
        """Create a log in the given directory, the preferred one, or the one with the fewest logs.
        It has no files before its first append.
        Raises StillListed if a log of this name was deleted since the checkpoints were saved."""
        if partition in self.logs or partition in self.damaged:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} exists already")
        if not self.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        self.offsets.check_unlisted(partition)
        preferred = self.preferred.pop(partition, None)
        chosen = (
            directory
            or (preferred if preferred in self.online else None)
            or self._with_fewest_logs()
        )
        try:
            log = create_log(
                partition,
                topic_id,
                chosen,
                self._files,
                self._world,
                config,
                due=self.due,
                on_disk=False,
            )
        except OSError as error:
            raise chosen.fail(f"creating {partition}", error) from error
        self.logs[partition] = log
        chosen.log_count += 1
        return log

    def _with_fewest_logs(self) -> LogDirectory:
        # If all are cordoned, the replica was assigned to this broker before that.
        usable = [directory for directory in self.online if not directory.cordoned] or self.online
        return min(usable, key=lambda directory: directory.log_count)

    def give_topic_id(self, partition: TopicPartition, topic_id: UUID) -> None:
        """Write the topic id of a log that has none: its partition.metadata may not have been
        synced before a power failure."""
        log = self.logs[partition]
        log.topic_id = topic_id
        try:
            log.write_topic_id()
        except OSError as error:
            raise log.directory.fail(f"writing the topic id of {partition}", error) from error

    def delete(self, partition: TopicPartition) -> None:
        """Take a log out of service immediately. Its files are removed after
        file.delete.delay.ms."""
        log = self._take_out(partition)
        # A log has a directory and is not on disk if its first append was refused.
        if log.is_on_disk or self._disk.is_dir(log.path):
            self.mark_deleted(partition, log.directory, log.config.file_delete_delay_ms)

    def set_aside(self, partition: TopicPartition) -> str:
        """Take a log out of service and keep its files in a directory that ends with -stray. Return
        its path."""
        log = self._take_out(partition)
        return self._rename(partition, log.directory, names.STRAY_DIR_SUFFIX)

    def _take_out(self, partition: TopicPartition) -> Log:
        log = self.logs.pop(partition)
        log.directory.log_count -= 1
        log.flushing.abandoned = True
        self.due.forget(log)
        if log.is_on_disk:
            self.offsets.deleted(partition)
        self.moves.forget(partition)
        self.compactions.forget(partition)
        return log

    def mark_deleted(
        self, partition: TopicPartition, directory: LogDirectory, delay_ms: int, path: str = ""
    ) -> None:
        """Rename a directory, by default that of the partition, so that it is gone at the next
        start, and remove it after a delay."""
        renamed = self._rename(partition, directory, names.DELETE_DIR_SUFFIX, path)
        self.remove_later(renamed, delay_ms)

    def _rename(
        self, partition: TopicPartition, directory: LogDirectory, suffix: str, path: str = ""
    ) -> str:
        path = path or f"{directory.path}/{partition}"
        name = names.renamed_dir(partition, self._world.rng.uuid(), suffix)
        self._files.forget_under(path)
        try:
            self._disk.rename(path, f"{directory.path}/{name}")
        except OSError as error:
            raise directory.fail(f"renaming {partition}", error) from error
        return f"{directory.path}/{name}"

    async def truncate(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Truncate logs. Nothing may be appended to them until this returns."""
        await self.truncations.truncate(offsets)

    async def restart(self, partition: TopicPartition, offset: int) -> None:
        """Empty a log and let it continue at an offset: the leader does not have the records after
        the follower's end any more."""
        await self.truncations.restart(partition, offset)

    # Upkeep

    async def expire_producers(self, expiration_ms: int) -> None:
        """Forget producers that were idle for producer.id.expiration.ms, of some logs per turn of
        the event loop."""
        for number, producers in enumerate(list(self.due.producers), 1):
            producers.expire(self._world.clock.now_ms(), expiration_ms)
            if number % limits.EXPIRED_LOGS_A_TURN == 0:
                await asyncio.sleep(0)

    def remove_later(self, path: str, delay_ms: int) -> None:
        """Let `remove_due_files` remove a file or a directory after a delay."""
        self._removals.append((self._world.clock.monotonic() + delay_ms / 1000, path))

    async def close_files(self) -> None:
        """Close evicted files in a thread: closing may block."""
        forgotten = self._files.take_forgotten()
        if forgotten:
            await self._world.offload.thread(forgotten.clear)

    async def remove_due_files(self) -> None:
        """Remove files whose delay is over, in a thread: removing a large file takes long."""
        now = self._world.clock.monotonic()
        due = [path for at, path in self._removals if at <= now]
        self._removals = [(at, path) for at, path in self._removals if at > now]
        for path in due:
            directory = next(d for d in self.directories if path.startswith(d.path + "/"))
            try:
                remove = self._disk.remove_tree if self._disk.is_dir(path) else self._disk.remove
                await self._world.offload.thread(remove, path)
            except FileNotFoundError:
                # A segment of a partition that was deleted or moved since: it is removed with its
                # directory, under another name.
                pass
            except OSError as error:
                directory.fail(f"removing {path}", error)

    async def flush_due(self) -> None:
        """Sync the logs that sealed a segment, or whose flush.ms has passed."""
        await self.close_files()
        for log in self.due.flush_times.take(self._world.clock.monotonic()):
            log.flushing.plan()
        for log in list(self.due.flushes):
            self.due.flushes.pop(log, None)
            try:
                await log.flushing.all()
            except KafkaError:
                # The directory has logged its failure. The log may be deleted or in another
                # directory by now.
                if log.directory.failure is None and not log.flushing.abandoned:
                    raise

    async def write_back(self) -> None:
        """Start writing out appended data. Otherwise the kernel defers it for long, and then blocks
        writers: the event loop."""
        for path in self._files.take_grown():
            partition = names.parse_partition_dir(path.split("/")[-2])
            log = None if partition is None else self.logs.get(partition)
            # Logs can be deleted, and segments sealed, while the data of another one is written
            # out.
            if log is None or log.active.path != path:
                continue
            segment = log.active
            start, length = segment.written_back, segment.size - segment.written_back
            segment.written_back = segment.size
            try:
                await self._world.offload.thread(segment.file.write_back, start, length)
            except OSError as error:
                if self.logs.get(log.partition) is log:
                    log.directory.fail(f"writing out {log.partition}", error)

    def with_futures(self) -> Iterable[Log]:
        """Return the logs in service, and those that replicas move to."""
        return [*self.logs.values(), *(move.future for move in self.moves.under_way.values())]

    async def _close_log(self, log: Log) -> None:
        with unless_offline(log.directory):
            await log.flushing.all()
            while True:
                try:
                    return log.save()
                except TooManyFiles:
                    await asyncio.sleep(limits.FILES_RETRY_S)

    async def _save_epochs(self, logs: list[Log]) -> None:
        for directory in self.online:
            try:
                await save_epochs(self._world, [log for log in logs if log.directory is directory])
            except OSError as error:
                directory.fail("writing leader epochs", error)

    async def release(self) -> None:
        """Unlock the directories of a node that stops before its logs are open.

        If none was written to, the last shutdown still counts as clean.
        """
        for directory in self.online if self._is_untouched else ():
            epoch = self.clean_epochs.get(directory.path)
            if epoch is not None:
                await self.checkpoints.mark_clean(directory, epoch)
        for directory in self.directories:
            directory.unlock()

    async def close(self, broker_epoch: int = -1) -> None:
        """Shut down cleanly: sync everything, and write the clean shutdown marker in each
        directory."""
        logs = [log for log in self.with_futures() if log.is_on_disk]
        for start in range(0, len(logs), limits.CLOSED_LOGS_A_TURN):
            some = logs[start : start + limits.CLOSED_LOGS_A_TURN]
            # Together: the disk makes several syncs durable at once.
            await asyncio.gather(*map(self._close_log, some))
            await self._save_epochs(some)
            await self.close_files()
        await self.offsets.save_recovery_points()
        await self.offsets.save_start_offsets()
        for directory in self.online:
            await self.checkpoints.mark_clean(directory, broker_epoch)
        self._files.forget_all()
        # Now, and not when the collector finds the stopped node: a process may run many in turn.
        await self.close_files()
        for directory in self.directories:
            directory.unlock()
