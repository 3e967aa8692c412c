"""Kafka's checkpoint files: their text formats, and the checkpoints of a log directory.

Every file begins with a version and a count, so that a cut file is detected.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from penstock import limits
from penstock.ids import TopicPartition, parse_uuid, uuid_text
from penstock.log import names
from penstock.log.leader_epochs import EpochStart
from penstock.world import Disk, World

if TYPE_CHECKING:
    from penstock.log.directory import LogDirectory
    from penstock.log.log import Log

logger = logging.getLogger(__name__)


class CheckpointDamaged(ValueError):
    """The text of a checkpoint is not what was written."""


def _rows(text: str, fields: int) -> list[list[str]]:
    lines = text.splitlines()
    if len(lines) < 2 or lines[0].strip() != "0":
        raise CheckpointDamaged(
            f"expected version 0 in the first line and a count in the second, found {lines[:2]}"
        )
    if (
        not lines[1].strip().isdecimal()
        or len(lines[1]) > 12
        or int(lines[1]) > limits.MAX_CHECKPOINT_ENTRIES
    ):
        raise CheckpointDamaged(f"{lines[1]!r} is no possible count of entries")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]):
        raise CheckpointDamaged(f"{lines[1]} entries announced, {len(rows)} found")
    if any(len(row) != fields for row in rows):
        raise CheckpointDamaged(f"an entry does not have {fields} fields")
    return rows


def _text(rows: list[str]) -> bytes:
    return "\n".join(["0", str(len(rows)), *rows, ""]).encode()


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise CheckpointDamaged(f"{text!r} is not a number") from error


def offsets_text(rows: list[str]) -> bytes:
    """recovery-point-, log-start- and replication-offset-checkpoint."""
    return _text(rows)


def offset_row(partition: TopicPartition, offset: int) -> str:
    return f"{partition.topic} {partition.partition} {offset}"


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    rows = _rows(_decoded(data), 3)
    return {
        TopicPartition(topic, _number(partition)): _number(offset)
        for topic, partition, offset in rows
    }


def epochs_text(entries: Iterable[EpochStart]) -> bytes:
    """leader-epoch-checkpoint: epoch, start offset."""
    return _text([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def parse_epochs(data: bytes) -> list[EpochStart]:
    return [
        EpochStart(_number(epoch), _number(offset)) for epoch, offset in _rows(_decoded(data), 2)
    ]


def partition_metadata_text(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> UUID:
    fields = dict(line.split(": ", 1) for line in _decoded(data).splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise CheckpointDamaged("expected the lines 'version: 0' and 'topic_id: …'")
    try:
        return parse_uuid(fields["topic_id"])
    except ValueError as error:
        raise CheckpointDamaged(str(error)) from error


def clean_shutdown_text(broker_epoch: int) -> bytes:
    """Return the clean shutdown marker, with the broker epoch (KIP-966)."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def parse_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch of the marker; -1 for the empty marker of older Kafka versions."""
    if not data:
        return -1
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointDamaged(f"not the marker of a clean shutdown: {data[:80]!r}") from error
    if not isinstance(epoch, int):
        raise CheckpointDamaged(f"brokerEpoch is {epoch!r}, not a number")
    return epoch


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CheckpointDamaged(f"not text: {error}") from error


def _replace(disk: Disk, path: str, rows: list[str]) -> None:
    disk.replace(path, offsets_text(rows))


class Checkpoints:
    """Reads and writes the checkpoints of log directories."""

    def __init__(self, world: World) -> None:
        self._disk = world.disk
        self._offload = world.offload
        self._saving = asyncio.Lock()

    def read(self, path: str, name: str) -> dict[TopicPartition, int]:
        """Return the offsets of a checkpoint. A damaged or lost checkpoint is empty: more is
        scanned, and nothing is assumed."""
        checkpoint = f"{path}/{name}"
        try:
            return (
                parse_offsets(self._disk.read(checkpoint)) if self._disk.exists(checkpoint) else {}
            )
        except CheckpointDamaged as error:
            logger.warning("ignoring damaged checkpoint %s: %s", checkpoint, error)
            return {}

    async def save(
        self,
        name: str,
        directories: list[LogDirectory],
        logs: Callable[[], Iterable[Log]],
        offset_of: Callable[[Log], int | None],
    ) -> None:
        """Write a checkpoint for each directory, with the rows of some logs per turn of the event
        loop; a log without an offset or without files has no row, which means 0. Saves run one at a
        time and read the offsets while they run: an older state never replaces a newer one."""
        async with self._saving:
            rows: dict[LogDirectory, list[str]] = {directory: [] for directory in directories}
            for number, log in enumerate(list(logs()), 1):
                offset = offset_of(log) if log.is_on_disk else None
                if offset is not None and log.directory in rows:
                    rows[log.directory].append(offset_row(log.partition, offset))
                if number % limits.CHECKPOINTED_LOGS_A_TURN == 0:
                    await asyncio.sleep(0)
            for directory, directory_rows in rows.items():
                try:
                    await self._offload.thread(
                        _replace, self._disk, f"{directory.path}/{name}", directory_rows
                    )
                except OSError as error:
                    directory.fail(f"writing {name}", error)

    def take_clean_mark(self, path: str) -> int | None:
        """Return the broker epoch of a clean shutdown; None after a crash. The marker is removed
        before anything changes, so that a later crash is seen as one."""
        marker = f"{path}/{names.CLEAN_SHUTDOWN}"
        if not self._disk.exists(marker):
            return None
        try:
            epoch: int | None = parse_clean_shutdown(self._disk.read(marker))
        except CheckpointDamaged as error:
            logger.warning(
                "ignoring damaged clean shutdown marker %s, recovering as after a crash: %s",
                marker,
                error,
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
