"""Truncation of logs, safe against a crash at any point.

Recovery takes a log that ends below its recovery point for damaged, so the recovery points on disk
are lowered first. Segments after the truncation point are removed before a segment is cut: a crash
in between leaves no hole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from penstock.ids import TopicPartition
from penstock.log.flush import sync_log, truncating
from penstock.log.log import Log
from penstock.log.producers.replay import load_steps
from penstock.log.producers.state import ProducerStates
from penstock.world import Disk, File, World

if TYPE_CHECKING:
    from penstock.log.store import LogStore

logger = logging.getLogger(__name__)


class Truncations:
    """The truncations of a store, one at a time. The last step of a move holds the same lock."""

    def __init__(self, store: LogStore, world: World) -> None:
        self.lock = asyncio.Lock()
        self._store = store
        self._world = world

    async def truncate(self, offsets: Mapping[TopicPartition, int]) -> None:
        async with self.lock:
            logs = {
                log: offset
                for partition, offset in offsets.items()
                if (log := self._store.logs.get(partition)) is not None and offset < log.end_offset
            }
            with contextlib.ExitStack() as held:
                for log, offset in logs.items():
                    held.enter_context(log.flushing.held_at(log.batch_start(offset)))
                await self._save_lowered_recovery_points()
                await self._lower_clean_offsets(logs)
                for log, offset in logs.items():
                    producers = await self._load_producers(log, offset)
                    for cut in (log.segment_end(offset), offset):
                        await self._apply(log, partial(log.cut_off, cut, producers))

    async def restart(self, partition: TopicPartition, offset: int) -> None:
        async with self.lock:
            log = self._store.logs.get(partition)
            if log is None:
                return
            with log.flushing.held_at(0):
                await self._save_lowered_recovery_points()
                await self._lower_clean_offsets({log: 0})
                await self._apply(log, partial(log.restart_at, offset))

    async def _save_lowered_recovery_points(self) -> None:
        """Save the recovery points if one was lowered. That of a log which was not flushed lately
        is below the truncation, and the checkpoint has a row for each log."""
        if self._store.due.is_recovery_point_lowered:
            await self._store.offsets.save_recovery_points()

    async def _lower_clean_offsets(self, offsets: Mapping[Log, int]) -> None:
        """Lower the cleaner checkpoint on disk before the truncation: records appended after it
        must not count as compacted."""
        lowered = [
            (log, offset)
            for log, offset in offsets.items()
            if log.clean_offset is not None and log.clean_offset > offset
        ]
        for log, offset in lowered:
            log.clean_offset = offset
        if lowered:
            await self._store.offsets.save_clean_offsets()

    async def _load_producers(self, log: Log, offset: int) -> ProducerStates:
        """Return the producer state of the log at the batch that holds an offset. It is complete
        before the log changes, so that the log is consistent whenever other code looks at it. A log
        with many batches after its last snapshot takes many turns of the event loop."""
        producers, notes = ProducerStates(), list[str]()
        # A log that knows no producer at its end knew none before, except those that have expired.
        if log.producers.producers and log.segments[0].base_offset <= offset < log.end_offset:
            with self._failing(log):
                for part in load_steps(
                    producers,
                    self._world.disk,
                    log.path,
                    log.segments,
                    log.batch_start(offset),
                    notes,
                ):
                    if part is None or part.file.in_memory(part.length, part.position):
                        await asyncio.sleep(0)
                    else:
                        await self._world.offload.read(
                            part.file.bring_in, part.length, part.position
                        )
        for note in notes:
            logger.warning("truncation: %s", note)
        return producers

    async def _apply(self, log: Log, change: Callable[[], None]) -> None:
        if log.flushing.abandoned:
            return
        disk = self._world.disk
        with self._failing(log):
            log.make_files()
        with self._failing(log), truncating(disk, log.path):
            change()
            active = log.active
            files = [file for file in (active.file, active.txn_index.file) if file is not None]
            await self._world.offload.thread(_cut_and_sync, disk, log.path, files, active.size)

    @contextlib.contextmanager
    def _failing(self, log: Log) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # The files of a partition that was deleted in between are gone.
            if not log.flushing.abandoned:
                raise log.directory.fail(f"truncating {log.partition}", error) from error


def _cut_and_sync(disk: Disk, directory: str, files: list[File], size: int) -> None:
    """Cut the first file, which is a segment, to a size. The others are cut already."""
    files[0].truncate(size)
    sync_log(disk, directory, files, [directory])
