"""The offsets of all logs that a store keeps in checkpoints: recovery points, log starts, high
watermarks, and how far logs are compacted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.log import names
from penstock.log.checkpoint import Checkpoints
from penstock.log.directory import LogDirectory
from penstock.log.due import DueLogs
from penstock.log.log import Log

_CHECKPOINTS = (
    names.RECOVERY_POINTS,
    names.LOG_STARTS,
    names.HIGH_WATERMARKS,
    names.CLEAN_OFFSETS,
)


class Offsets(Protocol):
    """Has an offset of some partitions, such as their high watermarks."""

    def get(self, partition: TopicPartition, /) -> int | None: ...


class StillListed(KafkaError):
    """A checkpoint may have offsets of a deleted log of the same name. With its recovery point the
    new log would look damaged after a crash, and with its high watermark uncommitted records would
    look committed. Call `forget_deleted`, then create the log."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the checkpoints still list the deleted log of {partition}",
        )


class Logs(Protocol):
    """What the checkpoints list."""

    logs: dict[TopicPartition, Log]
    due: DueLogs

    @property
    def online(self) -> list[LogDirectory]: ...

    def with_futures(self) -> Iterable[Log]: ...


class SavedOffsets:
    """Saves the offsets of the logs in service, and knows which deleted logs are still listed."""

    def __init__(self, store: Logs, checkpoints: Checkpoints) -> None:
        self._store = store
        self._checkpoints = checkpoints
        # By checkpoint: the partitions without a log that the files on disk may still list.
        self._deleted: dict[str, set[TopicPartition]] = {name: set() for name in _CHECKPOINTS}

    # Deleted logs

    def read(self, directory: LogDirectory) -> Mapping[str, dict[TopicPartition, int]]:
        """Return the offsets of a directory by checkpoint. Until `opened`, all count as deleted."""
        offsets = {name: self._checkpoints.read(directory.path, name) for name in _CHECKPOINTS}
        for name, deleted in self._deleted.items():
            deleted.update(offsets[name])
        return offsets

    def opened(self) -> None:
        for deleted in self._deleted.values():
            deleted.difference_update(self._store.logs)

    def deleted(self, partition: TopicPartition) -> None:
        for deleted in self._deleted.values():
            deleted.add(partition)

    def check_unlisted(self, partition: TopicPartition) -> None:
        if any(partition in deleted for deleted in self._deleted.values()):
            raise StillListed(partition)

    async def forget_deleted(self, high_watermarks: Offsets) -> None:
        """Save all checkpoints, so that the names of deleted logs can be used again."""
        await self.save_high_watermarks(high_watermarks)
        await self.save_recovery_points()
        await self.save_start_offsets()
        await self.save_clean_offsets()

    # Saving

    async def save_changed(self) -> None:
        """Save the recovery points and log starts that changed since they were saved."""
        changed = self._store.due.changed_checkpoints
        if names.RECOVERY_POINTS in changed:
            await self.save_recovery_points()
        if names.LOG_STARTS in changed:
            await self.save_start_offsets()

    async def save_recovery_points(self) -> None:
        self._store.due.is_recovery_point_lowered = False
        await self._save(
            names.RECOVERY_POINTS,
            lambda log: log.flushing.recovery_point,
            self._store.with_futures,
        )

    async def save_start_offsets(self) -> None:
        await self._save(names.LOG_STARTS, lambda log: log.start_offset)

    async def save_high_watermarks(self, high_watermarks: Offsets) -> None:
        await self._save(names.HIGH_WATERMARKS, lambda log: high_watermarks.get(log.partition) or 0)

    async def save_clean_offsets(self) -> None:
        await self._save(names.CLEAN_OFFSETS, lambda log: log.clean_offset)

    async def _save(
        self,
        name: str,
        offset_of: Callable[[Log], int | None],
        logs: Callable[[], Iterable[Log]] | None = None,
    ) -> None:
        """`logs` returns the logs of the checkpoint, by default those in service."""
        logs, deleted = logs or self._store.logs.values, self._deleted[name]
        unlisted: set[TopicPartition] | None = None
        # Repeat if partitions were deleted while the checkpoint was written.
        while unlisted is None or deleted - unlisted:
            unlisted = set(deleted)
            self._store.due.changed_checkpoints.discard(name)
            await self._checkpoints.save(name, self._store.online, logs, offset_of)
        deleted -= unlisted

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks of the open logs. The checkpoint of another directory than
        that of the log may list an earlier log of the same name."""
        found: dict[TopicPartition, int] = {}
        for directory in self._store.online:
            offsets = self._checkpoints.read(directory.path, names.HIGH_WATERMARKS)
            for partition, offset in offsets.items():
                log = self._store.logs.get(partition)
                if log is not None and log.directory is directory:
                    found[partition] = offset
        return found
