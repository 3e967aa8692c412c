"""Periodic work of a broker on its logs: ISR checks, write-back, flush, retention, compaction,
checkpoints and expiry of producers.

Each looks only at partitions that something happened to (`log.due`, `PartitionMarks`): an idle
partition costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.config import cleaner_settings, cluster_settings, log_settings
from penstock.config.node import NodeConfig
from penstock.log.compaction.run import Pace
from penstock.node.metadata import MetadataView
from penstock.node.replication.replicas import Replicas

# Sealed segments are synced, and flush.ms is checked, at this interval.
_FLUSH_INTERVAL_S = 0.5
# At 300 MB/s, 30 MB are appended between two write-backs.
_WRITE_BACK_INTERVAL_S = 0.1
# The shortest interval between two searches for logs to compact, even if log.cleaner.backoff.ms=0.
_MIN_CLEANER_BACKOFF_S = 0.01


class Upkeep:
    def __init__(self, config: NodeConfig, metadata: MetadataView, replicas: Replicas) -> None:
        self._config = config
        self._metadata = metadata
        self._replicas = replicas
        self._store = replicas.store

    async def run(self) -> None:
        config, store = self._config, self._store
        lag_s = config[cluster_settings.REPLICA_LAG_TIME_MAX_MS] / 1000
        retention_s = config[log_settings.LOG_RETENTION_CHECK_INTERVAL_MS] / 1000
        checkpoint_s = config[log_settings.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS] / 1000
        expiration_s = config[log_settings.PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS] / 1000
        async with asyncio.TaskGroup() as group:
            group.create_task(_every(lag_s / 2, self._review_isr))
            group.create_task(_every(_WRITE_BACK_INTERVAL_S, store.write_back))
            group.create_task(_every(_FLUSH_INTERVAL_S, store.flush_due))
            group.create_task(_every(retention_s, self._apply_retention))
            group.create_task(_every(checkpoint_s, self._checkpoint))
            if config[cleaner_settings.LOG_CLEANER_ENABLE]:
                group.create_task(self._compact())
            group.create_task(_every(expiration_s, self._expire_producers))

    async def _review_isr(self) -> None:
        for _step in self._replicas.review_marked():
            await asyncio.sleep(0)

    async def _apply_retention(self) -> None:
        await self._store.expiry.apply(self._replicas.high_watermarks)
        await self._store.remove_due_files()

    async def _compact(self) -> None:
        while True:
            settings = self._metadata.broker_config
            buffer_bytes = settings[cleaner_settings.LOG_CLEANER_DEDUPE_BUFFER_SIZE]
            load_factor = min(settings[cleaner_settings.LOG_CLEANER_IO_BUFFER_LOAD_FACTOR], 1.0)
            pace = Pace(
                int(buffer_bytes * load_factor),
                max(settings[cleaner_settings.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND], 1.0),
            )
            stable_offsets = self._replicas.last_stable_offsets
            if await self._store.compactions.run_once(stable_offsets, pace):
                await self._store.remove_due_files()
            else:
                backoff_s = settings[cleaner_settings.LOG_CLEANER_BACKOFF_MS] / 1000
                await asyncio.sleep(max(backoff_s, _MIN_CLEANER_BACKOFF_S))

    async def _checkpoint(self) -> None:
        await self._store.offsets.save_changed()
        await self._replicas.save_changed_high_watermarks()

    async def _expire_producers(self) -> None:
        await self._store.expire_producers(self._config[log_settings.PRODUCER_ID_EXPIRATION_MS])


async def _every(interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        await work()
