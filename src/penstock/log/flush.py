"""Syncing a log to disk outside of the event loop, and markers of syncs and truncations that did
not complete.

A log has one fdatasync in flight; appends made during it are part of the next. `Flush` owns the
recovery point: everything below it is on disk. A failed sync takes the log directory offline, even
if no caller waits for it.

After a failed sync Linux marks the lost pages clean: reads still return them, and a later sync
succeeds without writing them. A truncation that is not synced is visible in the page cache, but a
power failure may bring the old bytes back, between new ones that were appended after it. So a
marker file is in the partition's directory while a sync or a truncation runs, and stays if it does
not complete. Recovery then writes every batch of the unsynced tail again and syncs it before
anything is appended. (A power failure may remove the marker too, but then also everything that was
only in the page cache.)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.config.log_settings import MAX_LONG
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import FILES_RETRY_S
from penstock.log import names
from penstock.log.checkpoint import epochs_text
from penstock.log.files import OpenFiles
from penstock.world import TOO_MANY_FILES, Disk, File, World

if TYPE_CHECKING:
    from penstock.log.log import Log


_MARKERS = (names.SYNCING, names.TRUNCATING)


@contextlib.contextmanager
def truncating(disk: Disk, directory: str) -> Iterator[None]:
    """Mark a truncation, from the first change up to the sync of the files that are left."""
    with _marked(disk, f"{directory}/{names.TRUNCATING}"):
        yield


def sync_log(disk: Disk, directory: str, files: list[File], directories: list[str]) -> None:
    """Sync files and directories; blocks. Files are open, because the event loop may rename or
    remove them during the sync."""
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


def is_unsynced(disk: Disk, directory: str) -> bool:
    """Return True if the page cache cannot be trusted: a sync or truncation did not complete."""
    return any(disk.exists(f"{directory}/{marker}") for marker in _MARKERS)


def mark_synced(disk: Disk, directory: str, files: list[File]) -> None:
    """Sync the files that recovery wrote again, and remove the markers."""
    for file in files:
        file.sync()
    disk.sync_dir(directory)
    for marker in _MARKERS:
        if disk.exists(f"{directory}/{marker}"):
            disk.remove(f"{directory}/{marker}")


async def save_epochs(world: World, logs: Iterable[Log]) -> None:
    """Write the leader epochs of logs that are closed, in a thread. Raises OSError."""
    texts = [(f"{log.path}/{names.LEADER_EPOCHS}", epochs_text(log.epochs.entries)) for log in logs]
    await world.offload.thread(_replace_changed, world.disk, texts)


def _replace_changed(disk: Disk, texts: list[tuple[str, bytes]]) -> None:
    """Write files of leader epochs, except those that have this text: a node that stops saves all
    its logs, and a sync for each takes long. No file is the same as no epochs."""
    for path, text in texts:
        saved = disk.read(path) if disk.exists(path) else epochs_text([])
        if saved != text:
            disk.replace(path, text)


class Flush:
    """The flushing of one log. The log directory keeps a failure, and every waiter gets it."""

    __slots__ = (
        "_clock",
        "_cut_at",
        "_disk",
        "_files",
        "_held_at",
        "_last_flush",
        "_log",
        "_offload",
        "_running",
        "_saved_epochs",
        "abandoned",
        "also",
        "is_planned",
        "names_changed",
        "recovery_point",
    )

    def __init__(self, log: Log, files: OpenFiles, world: World, recovery_point: int) -> None:
        self.recovery_point = recovery_point
        # The partition was deleted: its files may be removed during a sync.
        self.abandoned = False
        # Whether flush.ms was looked at since the last flush.
        self.is_planned = False
        self.names_changed = True
        # The names of files beside the segments that go to disk with the next flush: producer
        # snapshots, indexes of sealed segments.
        self.also: tuple[str, ...] = ()
        self._log = log
        self._files = files
        self._disk = world.disk
        self._offload = world.offload
        self._clock = world.clock
        self._running: asyncio.Task[None] | None = None
        # A truncation in progress, and the lowest one since the current sync began: synced offsets
        # above them do not count.
        self._held_at: int | None = None
        self._cut_at: int | None = None
        self._saved_epochs: bytes | None = None
        self._last_flush = world.clock.monotonic()

    def due(self) -> bool:
        """Return True if flush.messages or flush.ms require a flush before the last append
        counts."""
        unflushed = self._log.end_offset - self.recovery_point
        if unflushed == 0:
            return False
        config = self._log.config
        return (
            unflushed >= config.flush_messages
            or (self._clock.monotonic() - self._last_flush) * 1000 >= config.flush_ms
        )

    def request(self) -> None:
        """Let the node flush the log soon, even if no caller waits for it."""
        self._log.due.flushes[self._log] = None

    def plan(self) -> None:
        """Let the node flush the log when flush.ms has passed; called on the first append after a
        flush, and when settings change."""
        self.is_planned = self._log.end_offset > self.recovery_point
        if self.due():
            self.request()
        elif self.is_planned and self._log.config.flush_ms < MAX_LONG:
            time = self._last_flush + self._log.config.flush_ms / 1000
            self._log.due.flush_times.not_after(self._log, time)

    async def to(self, offset: int) -> None:
        """Wait until everything below an offset is on disk. Raises KafkaError if that cannot be
        promised any more."""
        while self.recovery_point < min(offset, self._log.end_offset):
            if self.abandoned:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._log.partition} was deleted"
                )
            if self._log.directory.failure is not None:
                raise self._log.directory.offline()
            if self._running is None:
                self._running = asyncio.create_task(self._sync(), name=f"flush {self._log.path}")
            # Shielded: a cancelled waiter must not stop a sync that others wait for, nor hide its
            # failure.
            await asyncio.shield(self._running)

    async def all(self) -> None:
        await self.to(self._log.end_offset)

    async def _sync(self) -> None:
        log, path = self._log, self._log.path
        try:
            files = await self._open_unsynced()
            end, directories = (
                log.end_offset,
                [log.path, log.directory.path] if self.names_changed else [],
            )
            self.names_changed, self.also, self._cut_at = False, (), self._held_at
            log.due.flushes.pop(log, None)
            began = self._clock.monotonic()
            await self._offload.thread(sync_log, self._disk, log.path, files, directories)
            log.due.counts.flushes.observe(self._clock.monotonic() - began)
            await self._save_changed_epochs()
        except OSError as error:
            if not self.abandoned and log.path == path:
                log.directory.fail("flush", error)
            return
        finally:
            self._running = None
        if log.path != path:
            # The log moved during the sync: the synced files are not its files any more.
            return
        self._last_flush = self._clock.monotonic()
        synced = end if self._cut_at is None else min(end, self._cut_at)
        self.recovery_point = max(self.recovery_point, synced)
        log.due.changed_checkpoints.add(names.RECOVERY_POINTS)
        self.is_planned = False
        if log.end_offset > self.recovery_point:
            self.plan()

    async def _open_unsynced(self) -> list[File]:
        """Open the files to sync. Wait while too many files are open."""
        while True:
            try:
                return [self._files.get(path) for path in self._unsynced_paths()]
            except OSError as error:
                if error.errno not in TOO_MANY_FILES or self.abandoned:
                    raise
                self._log.directory.fail("flush", error)
            await asyncio.sleep(FILES_RETRY_S)

    def _unsynced_paths(self) -> list[str]:
        """Return the segments from the recovery point on, and the files written beside them since
        the last flush. The offset and time index of the active segment are in memory, and are
        rebuilt after a crash."""
        *sealed, active = self._log.segments
        ends = [segment.base_offset for segment in self._log.segments[1:]]
        paths = [
            path
            for segment, end in zip(sealed, ends, strict=True)
            if end > self.recovery_point
            for path in segment.paths
        ]
        paths += [
            active.path,
            active.paths[-1],
            *(f"{self._log.path}/{name}" for name in self.also),
        ]
        return [path for path in dict.fromkeys(paths) if self._disk.exists(path)]

    async def _save_changed_epochs(self) -> None:
        data = epochs_text(self._log.epochs.entries)
        if data != self._saved_epochs:
            path = self._log.path
            await self._offload.thread(self._disk.replace, f"{path}/{names.LEADER_EPOCHS}", data)
            self._saved_epochs = data if self._log.path == path else None

    @contextlib.contextmanager
    def held_at(self, offset: int) -> Iterator[None]:
        """Keep the recovery point at or below an offset while the log is truncated to it."""
        self._held_at = offset
        self._lower(offset)
        try:
            yield
        finally:
            self._held_at = None

    def truncated(self, end_offset: int) -> None:
        """Lower the recovery point: new records take the place of synced ones."""
        self._lower(end_offset)
        self.names_changed = True

    def relocate(self, other: Flush) -> None:
        """Adopt the flush state of another log, in whose renamed directory this log continues."""
        self.recovery_point = other.recovery_point
        self.also = other.also
        self.names_changed, self._saved_epochs = True, None
        self._log.due.changed_checkpoints.add(names.RECOVERY_POINTS)
        self.request()
        other.abandoned = True

    def _lower(self, offset: int) -> None:
        self._cut_at = offset if self._cut_at is None else min(self._cut_at, offset)
        if offset < self.recovery_point:
            self.recovery_point = offset
            self._log.due.changed_checkpoints.add(names.RECOVERY_POINTS)
            self._log.due.is_recovery_point_lowered = True
