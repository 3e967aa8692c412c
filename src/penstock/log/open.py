"""Opening a partition's directory: what is there, what a crash left of it, and the log that comes
of it."""

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
    partition_metadata_text,
)
from penstock.log.compaction.swap import finish_swaps
from penstock.log.directory import LogDirectory
from penstock.log.files import OpenFiles
from penstock.log.flush import is_unsure
from penstock.log.leader_epochs import EpochStart, LeaderEpochs
from penstock.log.log import Log, LogState
from penstock.log.producers.replay import load_producers
from penstock.log.producers.state import ProducerStates
from penstock.log.recovery import Recovered, rebuild_indexes, recover, unflushed
from penstock.log.segment import Segment, new_segment
from penstock.records.batch import CorruptBatch
from penstock.world import Disk, World

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What the checkpoints of a log directory say of a partition."""

    clean: bool
    recovery_point: int = 0
    start_offset: int = 0


def create_log(
    partition: TopicPartition,
    topic_id: UUID,
    directory: LogDirectory,
    files: OpenFiles,
    world: World,
    config: LogConfig,
    start_offset: int = 0,
    name: str = "",
) -> Log:
    """A new, empty log, in a directory named after the partition unless told otherwise. Its first
    flush makes that name durable as well."""
    path = f"{directory.path}/{name or partition}"
    disk = world.disk
    disk.make_dirs(path)
    segment = new_segment(files, path, start_offset, world.clock.now_ms())
    producers = ProducerStates()
    producers.end_offset = start_offset
    state = LogState([segment], start_offset, start_offset, start_offset, LeaderEpochs(), producers)
    log = Log(partition, topic_id, path, directory, files, world, config, state)
    write_topic_id(disk, log)
    return log


def write_topic_id(disk: Disk, log: Log) -> None:
    """Durable with the next flush."""
    metadata = f"{log.path}/{names.PARTITION_METADATA}"
    disk.open(metadata, create=True).pwrite(partition_metadata_text(log.topic_id), 0)
    log.flushing.also.append(metadata)


async def open_log(
    partition: TopicPartition,
    directory: LogDirectory,
    files: OpenFiles,
    world: World,
    config: LogConfig,
    found: Found,
) -> Log:
    """The log of a directory, recovered where it was not closed cleanly. KafkaError where it is
    damaged."""
    path = f"{directory.path}/{partition}"
    _tidy(world.disk, path)
    bases = _segment_bases(world.disk, path)
    if not bases:
        return create_log(
            partition,
            _topic_id(world.disk, path),
            directory,
            files,
            world,
            config,
            found.start_offset,
        )
    state = (
        _clean_state(files, path, bases, found, config)
        if found.clean and not is_unsure(world.disk, path)
        else None
    )
    if state is None:
        state = await _recovered_state(files, path, bases, found, world, config)
    return Log(partition, _topic_id(world.disk, path), path, directory, files, world, config, state)


def _tidy(disk: Disk, path: str) -> None:
    """Finishes the swaps of compactions. Removes what was on its way out, or half written, when the
    node stopped; and indexes whose segment is gone."""
    _say(finish_swaps(disk, path))
    found = disk.list(path)
    for name in found:
        parsed = names.parse_segment_file(name)
        orphan = (
            parsed is not None
            and parsed[1] != names.SNAPSHOT
            and names.segment_file(parsed[0], names.LOG) not in found
        )
        if orphan or name.endswith((names.DELETED, ".tmp", names.CLEANED)):
            disk.remove(f"{path}/{name}")


def _segment_bases(disk: Disk, path: str) -> list[int]:
    parsed = [names.parse_segment_file(name) for name in disk.list(path)]
    return sorted(found[0] for found in parsed if found is not None and found[1] == names.LOG)


def _topic_id(disk: Disk, path: str) -> UUID:
    metadata = f"{path}/{names.PARTITION_METADATA}"
    try:
        return parse_partition_metadata(disk.read(metadata)) if disk.exists(metadata) else NO_UUID
    except CheckpointDamaged as error:
        logger.warning("%s is damaged and ignored: %s", metadata, error)
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
        if not indexes <= present:
            logger.warning("%s: an index of segment %d is missing and rebuilt", path, base)
            rebuild_indexes(files.disk, path, base, config.index_interval_bytes)
        file = f"{path}/{names.segment_file(base, names.LOG)}"
        created_ms, size = files.disk.modified_ms(file), files.disk.size(file)
        segments.append(Segment(files, path, base, active=active, created_ms=created_ms, size=size))
    return segments


def _clean_state(
    files: OpenFiles, path: str, bases: list[int], found: Found, config: LogConfig
) -> LogState | None:
    """The state that a clean shutdown left; None where the end of the log is not as it should be
    then."""
    try:
        segments = _segments(files, path, bases, config)
        end_offset = segments[-1].end_offset()
        epochs = LeaderEpochs(_epochs(files.disk, path))
    except (CorruptBatch, CheckpointDamaged) as error:
        logger.error("%s was closed cleanly, but is damaged and recovered: %s", path, error)
        return None
    epochs.truncate_from_end(end_offset)
    start_offset = min(max(found.start_offset, bases[0]), end_offset)
    epochs.truncate_from_start(start_offset)
    notes: list[str] = []
    producers = load_producers(files.disk, path, segments, end_offset, notes)
    _say(notes)
    return LogState(segments, start_offset, end_offset, end_offset, epochs, producers)


async def _recovered_state(
    files: OpenFiles, path: str, bases: list[int], found: Found, world: World, config: LogConfig
) -> LogState:
    tail = bases[unflushed(bases, found.recovery_point) :]
    size = sum(world.disk.size(f"{path}/{names.segment_file(base, names.LOG)}") for base in tail)
    arguments = (path, bases, found.recovery_point, config.index_interval_bytes, config.compacts)
    recovered: Recovered
    if size <= MAX_INLINE_RECOVERY_BYTES:
        recovered = recover(world.disk, *arguments)
    else:
        recovered = await world.offload.process(recover, *arguments)
    _say(recovered.notes)
    segments = _segments(files, path, recovered.bases, config)
    start_offset = min(max(found.start_offset, bases[0]), recovered.end_offset)
    recovered.epochs.truncate_from_start(start_offset)
    recovery_point = min(found.recovery_point, recovered.end_offset)
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


def _say(notes: list[str]) -> None:
    for note in notes:
        logger.warning("recovery: %s", note)
