"""Truncation of logs, safe against a crash at any point.

Recovery takes a log that ends below its recovery point for damaged, so the recovery points on disk
are lowered first. Segments after the truncation point are removed before a segment is cut: a crash
in between leaves no hole.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.ids import TopicPartition
from penstock.log.flush import sync_log, truncating
from penstock.log.log import Log
from penstock.world import World

if TYPE_CHECKING:
    from penstock.log.store import LogStore


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
                if logs:
                    await self._store.save_recovery_points()
                await self._lower_clean_offsets(logs)
                for log, offset in logs.items():
                    await self._apply(log, log.truncate_to, log.segment_end(offset))
                    await self._apply(log, log.truncate_to, offset)

    async def restart(self, partition: TopicPartition, offset: int) -> None:
        async with self.lock:
            log = self._store.logs.get(partition)
            if log is None:
                return
            with log.flushing.held_at(0):
                await self._store.save_recovery_points()
                await self._lower_clean_offsets({log: 0})
                await self._apply(log, log.restart_at, offset)

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
            await self._store.compactions.save()

    async def _apply(self, log: Log, truncate: Callable[[int], None], offset: int) -> None:
        if log.flushing.abandoned:
            return
        disk = self._world.disk
        try:
            with truncating(disk, log.path):
                truncate(offset)
                await self._world.offload.thread(
                    sync_log, disk, log.path, [log.active.file], [log.path]
                )
        except OSError as error:
            # The files of a partition that was deleted in between are gone.
            if not log.flushing.abandoned:
                raise log.directory.fail(f"truncating {log.partition}", error) from error
