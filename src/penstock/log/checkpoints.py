"""The checkpoints of a log directory on disk: offsets of its partitions, and the mark of a clean
shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.ids import TopicPartition
from penstock.log import names
from penstock.log.checkpoint import (
    CheckpointDamaged,
    clean_shutdown_text,
    offsets_text,
    parse_clean_shutdown,
    parse_offsets,
)
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.world import World

logger = logging.getLogger(__name__)


class Checkpoints:
    """Reads what a directory says, and saves what it should say next time."""

    def __init__(self, world: World) -> None:
        self._disk = world.disk
        self._offload = world.offload
        self._saving = asyncio.Lock()

    def read(self, path: str, name: str) -> dict[TopicPartition, int]:
        """A checkpoint that is damaged or lost is taken for an empty one: more is scanned, and
        nothing is assumed."""
        checkpoint = f"{path}/{name}"
        try:
            return (
                parse_offsets(self._disk.read(checkpoint)) if self._disk.exists(checkpoint) else {}
            )
        except CheckpointDamaged as error:
            logger.warning("%s is damaged and ignored: %s", checkpoint, error)
            return {}

    async def save(
        self, name: str, logs: list[tuple[LogDirectory, list[Log]]], offset_of: Callable[[Log], int]
    ) -> None:
        """One at a time, and with the offsets of that moment: an older state never replaces a newer
        one."""
        async with self._saving:
            for directory, some in logs:
                text = offsets_text([(log.partition, offset_of(log)) for log in some])
                try:
                    await self._offload.thread(self._disk.replace, f"{directory.path}/{name}", text)
                except OSError as error:
                    directory.fail(f"writing {name}", error)

    def take_clean_mark(self, path: str) -> int | None:
        """The broker epoch of a clean shutdown; None after a crash. The mark is removed before
        anything is changed, so that a crash from here on is seen as one."""
        marker = f"{path}/{names.CLEAN_SHUTDOWN}"
        if not self._disk.exists(marker):
            return None
        try:
            epoch: int | None = parse_clean_shutdown(self._disk.read(marker))
        except CheckpointDamaged as error:
            logger.warning(
                "%s is damaged, so the last shutdown is taken for a crash: %s", marker, error
            )
            epoch = None
        self._disk.remove(marker)
        self._disk.sync_dir(path)
        return epoch

    async def mark_clean(self, directory: LogDirectory, broker_epoch: int) -> None:
        marker = f"{directory.path}/{names.CLEAN_SHUTDOWN}"
        try:
            await self._offload.thread(
                self._disk.replace, marker, clean_shutdown_text(broker_epoch)
            )
        except OSError as error:
            directory.fail("marking a clean shutdown", error)
