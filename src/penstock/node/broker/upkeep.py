"""What a node does now and then: retention, compaction, flushes, checkpoints, the removal of
files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.config import cluster_settings, log_settings
from penstock.controller.configs.effective import DynamicBroker
from penstock.log.compaction.run import Pace

if TYPE_CHECKING:
    from penstock.node.node import Node

# Sealed segments are synced, and flush.ms honoured, this often.
_FLUSH_SECONDS = 0.5
# How often logs are looked at that grew: at 300 MB/s some 30 MB in between.
_WRITE_BACK_SECONDS = 0.1
# Logs are looked at for compaction no more often than this, also with log.cleaner.backoff.ms=0.
_LEAST_BACKOFF_SECONDS = 0.01


class Upkeep:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def run(self) -> None:
        config = self._node.config
        lag_s = config[cluster_settings.REPLICA_LAG_TIME_MAX_MS] / 1000
        async with asyncio.TaskGroup() as group:
            group.create_task(self._every(lag_s / 2, self._review))
            group.create_task(self._every(_WRITE_BACK_SECONDS, self._node.store.write_back))
            group.create_task(self._every(_FLUSH_SECONDS, self._node.store.flush_wanted))
            group.create_task(
                self._every(
                    config[log_settings.LOG_RETENTION_CHECK_INTERVAL_MS] / 1000, self._retain
                )
            )
            group.create_task(
                self._every(
                    config[log_settings.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS] / 1000,
                    self._checkpoint,
                )
            )
            if config[log_settings.LOG_CLEANER_ENABLE]:
                group.create_task(self._compact())
            group.create_task(
                self._every(
                    config[log_settings.PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS] / 1000,
                    self._expire_producers,
                )
            )

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await work()

    async def _retain(self) -> None:
        self._node.store.retain(
            {name: partition.high_watermark for name, partition in self._node.partitions.items()}
        )
        await self._node.store.remove_doomed()

    async def _compact(self) -> None:
        node, compactions = self._node, self._node.store.compactions
        while True:
            settings = DynamicBroker(node.image, node.config)
            buffer_bytes = settings[log_settings.LOG_CLEANER_DEDUPE_BUFFER_SIZE]
            share = min(settings[log_settings.LOG_CLEANER_IO_BUFFER_LOAD_FACTOR], 1.0)
            pace = Pace(
                int(buffer_bytes * share),
                max(settings[log_settings.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND], 1.0),
            )
            stable = {
                name: one.last_stable_offset
                for name, one in node.partitions.items()
                if one.config.compacts
            }
            if await compactions.run_once(stable, pace):
                await node.store.remove_doomed()
            else:
                await asyncio.sleep(
                    max(
                        settings[log_settings.LOG_CLEANER_BACKOFF_MS] / 1000, _LEAST_BACKOFF_SECONDS
                    )
                )

    async def _checkpoint(self) -> None:
        store = self._node.store
        await store.save_recovery_points()
        await store.save_start_offsets()
        await self._node.replicas.save_high_watermarks()

    async def _review(self) -> None:
        self._node.replicas.review()

    async def _expire_producers(self) -> None:
        self._node.store.expire_producers(self._node.config[log_settings.PRODUCER_ID_EXPIRATION_MS])
