"""Opening a partition's directory: cleaning up what a crash left, recovery, and building the
log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from uuid import UUID

from penstock.config.topic import LogConfig
from penstock.ids import NO_UUID, TopicPartition
from penstock.limits import MAX_INLINE_RECOVERY_BYTES
from penstock.log import names
from penstock.log.checkpoint import (
    CheckpointDamaged,
    parse_epochs,
    parse_partition_metadata,
)
from penstock.log.compaction.swap import finish_swaps
from penstock.log.directory import LogDirectory
from penstock.log.due import DueLogs
from penstock.log.files import OpenFiles
from penstock.log.flush import is_unsynced
from penstock.log.leader_epochs import EpochStart, LeaderEpochs
from penstock.log.log import Log, LogState
from penstock.log.producers.replay import load_producers, with_unreplicated
from penstock.log.producers.state import ProducerStates
from penstock.log.recovery import Recovered, rebuild_indexes, recover, unflushed
from penstock.log.segment import Segment, planned_segment
from penstock.records.batch import CorruptBatch
from penstock.world import Disk, World

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointedOffsets:
    """What the checkpoints of a log directory say about a partition. `high_watermark` is None for a
    log without one: the metadata log, or a copy that a replica moves to."""

    clean: bool
    recovery_point: int = 0
    start_offset: int = 0
    high_watermark: int | None = None


def create_log(
    partition: TopicPartition,
    topic_id: UUID,
    directory: LogDirectory,
    files: OpenFiles,
    world: World,
    config: LogConfig,
    start_offset: int = 0,
    name: str = "",
    due: DueLogs | None = None,
    *,
    on_disk: bool = True,
) -> Log:
    """Create an empty log, by default in a directory named after the partition. Its first flush
    makes that name durable as well. Without `on_disk` it has no files before its first append: a
    node creates thousands of partitions that get no records for long."""
    path = f"{directory.path}/{name or partition}"
    segment = planned_segment(files, path, start_offset, world.clock.now_ms())
    producers = ProducerStates()
    producers.end_offset = start_offset
    state = LogState([segment], start_offset, start_offset, start_offset, LeaderEpochs(), producers)
    log = Log(partition, topic_id, path, directory, files, world, config, state, due, on_disk=False)
    if on_disk:
        log.make_files()
    return log


async def open_log(
    partition: TopicPartition,
    directory: LogDirectory,
    files: OpenFiles,
    world: World,
    config: LogConfig,
    checkpointed: CheckpointedOffsets,
    name: str = "",
    due: DueLogs | None = None,
) -> Log:
    """Open the log of a directory, by default that named after the partition, and recover it if it
    was not closed cleanly. Raises KafkaError if it is damaged."""
    path = f"{directory.path}/{name or partition}"
    _clean_up(world.disk, path)
    bases = _segment_bases(world.disk, path)
    if not bases:
        return create_log(
            partition,
            _topic_id(world.disk, path),
            directory,
            files,
            world,
            config,
            checkpointed.start_offset,
            name,
            due,
        )
    state = (
        _clean_state(files, path, bases, checkpointed, config)
        if checkpointed.clean and not is_unsynced(world.disk, path)
        else None
    )
    was_clean = state is not None
    if state is None:
        state = await _recovered_state(files, path, bases, checkpointed, world, config)
    if _is_known(checkpointed.high_watermark, state):
        state.producers = with_unreplicated(
            state.producers,
            world.disk,
            path,
            state.segments,
            state.end_offset,
            checkpointed.high_watermark or 0,
        )
    topic_id = _topic_id(world.disk, path)
    is_saved = was_clean and state.producers.snapshot_offset == state.end_offset
    log = Log(partition, topic_id, path, directory, files, world, config, state, due)
    if is_saved:
        log.note_saved()
    return log


def _is_known(high_watermark: int | None, state: LogState) -> bool:
    """Return True if there is a high watermark. 0 in a large log means that the checkpoint was
    lost: all of the log would be read."""
    return high_watermark is not None and (
        high_watermark > 0
        or sum(segment.size for segment in state.segments) <= MAX_INLINE_RECOVERY_BYTES
    )


def _clean_up(disk: Disk, path: str) -> None:
    """Finish the swaps of compactions. Remove files that were being deleted or written when the
    node stopped, and indexes without a segment."""
    _log_notes(finish_swaps(disk, path))
    present = disk.list(path)
    for name in present:
        parsed = names.parse_segment_file(name)
        orphan = (
            parsed is not None
            and parsed[1] != names.SNAPSHOT
            and names.segment_file(parsed[0], names.LOG) not in present
        )
        if orphan or name.endswith((names.DELETED, ".tmp", names.CLEANED)):
            disk.remove(f"{path}/{name}")


def _segment_bases(disk: Disk, path: str) -> list[int]:
    parsed = [names.parse_segment_file(name) for name in disk.list(path)]
    return sorted(file[0] for file in parsed if file is not None and file[1] == names.LOG)


def _topic_id(disk: Disk, path: str) -> UUID:
    metadata = f"{path}/{names.PARTITION_METADATA}"
    try:
        return parse_partition_metadata(disk.read(metadata)) if disk.exists(metadata) else NO_UUID
    except CheckpointDamaged as error:
        logger.warning("ignoring damaged %s: %s", metadata, error)
        return NO_UUID


def _segments(files: OpenFiles, path: str, bases: list[int], config: LogConfig) -> list[Segment]:
    present = set(files.disk.list(path))
    segments = []
    for base in bases:
        active = base == bases[-1]
        indexes = {
            names.segment_file(base, names.OFFSET_INDEX),
            names.segment_file(base, names.TIME_INDEX),
        }
        file = f"{path}/{names.segment_file(base, names.LOG)}"
        created_ms, size = files.disk.modified_ms(file), files.disk.size(file)
        # An active segment without records has no indexes.
        if not indexes <= present and (size or not active):
            logger.warning("%s: rebuilding a missing index of segment %d", path, base)
            rebuild_indexes(files.disk, path, base, config.index_interval_bytes)
        segments.append(Segment(files, path, base, active=active, created_ms=created_ms, size=size))
    return segments


def _clean_state(
    files: OpenFiles,
    path: str,
    bases: list[int],
    checkpointed: CheckpointedOffsets,
    config: LogConfig,
) -> LogState | None:
    """Return the state that a clean shutdown left; None if the end of the log is damaged."""
    try:
        segments = _segments(files, path, bases, config)
        end_offset = segments[-1].end_offset()
        epochs = LeaderEpochs(_epochs(files.disk, path))
    except (CorruptBatch, CheckpointDamaged) as error:
        logger.error("recovering %s: it was closed cleanly, but is damaged: %s", path, error)
        return None
    epochs.truncate_from_end(end_offset)
    start_offset = min(max(checkpointed.start_offset, bases[0]), end_offset)
    epochs.truncate_from_start(start_offset)
    notes: list[str] = []
    producers = load_producers(files.disk, path, segments, end_offset, notes)
    _log_notes(notes)
    return LogState(segments, start_offset, end_offset, end_offset, epochs, producers)


async def _recovered_state(
    files: OpenFiles,
    path: str,
    bases: list[int],
    checkpointed: CheckpointedOffsets,
    world: World,
    config: LogConfig,
) -> LogState:
    tail = bases[unflushed(bases, checkpointed.recovery_point) :]
    size = sum(world.disk.size(f"{path}/{names.segment_file(base, names.LOG)}") for base in tail)
    arguments = (
        path,
        bases,
        checkpointed.recovery_point,
        config.index_interval_bytes,
        config.compacts,
    )
    recovered: Recovered
    if size <= MAX_INLINE_RECOVERY_BYTES:
        recovered = recover(world.disk, *arguments)
    else:
        recovered = await world.offload.background(recover, *arguments)
    _log_notes(recovered.notes)
    segments = _segments(files, path, recovered.bases, config)
    start_offset = min(max(checkpointed.start_offset, bases[0]), recovered.end_offset)
    recovered.epochs.truncate_from_start(start_offset)
    recovery_point = min(checkpointed.recovery_point, recovered.end_offset)
    return LogState(
        segments,
        start_offset,
        recovered.end_offset,
        recovery_point,
        recovered.epochs,
        recovered.producers,
    )


def _epochs(disk: Disk, path: str) -> list[EpochStart]:
    checkpoint = f"{path}/{names.LEADER_EPOCHS}"
    return parse_epochs(disk.read(checkpoint)) if disk.exists(checkpoint) else []


def _log_notes(notes: list[str]) -> None:
    for note in notes:
        logger.warning("recovery: %s", note)
