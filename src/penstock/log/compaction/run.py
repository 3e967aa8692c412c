"""The compactions of a store: chooses a log, has the child process compact it slice by slice, and
swaps in what comes of it.

While the child works the log lives on. Whatever happens to it meanwhile (cut, moved, deleted,
segments expired) is seen before a swap, and then what the child wrote is worth nothing: the log is
compacted another time. Groups are swapped in their order, so that also a part of them is a valid
log.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.log import names
from penstock.log.checkpoint import offsets_text
from penstock.log.compaction.cleanable import Cleanable, SegmentExtent, cleanable
from penstock.log.compaction.filter import LastOfProducer
from penstock.log.compaction.work import Cleaned, Job, JobLost, abandon, advance
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.log.producers.state import ProducerStates
from penstock.log.segment import Segment
from penstock.world import Disk, World

if TYPE_CHECKING:
    from penstock.log.store import LogStore

logger = logging.getLogger(__name__)

_SOME_OTHER_TIME = (errno.ENOENT, errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Pace:
    """What compaction may use: memory for keys, and bytes read and written a second."""

    map_bytes: int = 128 * 1024 * 1024
    max_bytes_per_second: float = float("inf")


@dataclass(slots=True, eq=False)
class _Run:
    """One compaction of one log, and the log as it was when it began."""

    log: Log
    segments: dict[int, Segment]
    cuts: int
    job: Job
    before: int = 0
    after: int = 0


class Compactions:
    """`run_once` compacts the log that needs it most, if one does. One at a time."""

    def __init__(self, store: LogStore, world: World) -> None:
        self._store = store
        self._world = world
        # Logs that could not be compacted, and will not be: something in them is damaged.
        self.given_up: dict[TopicPartition, str] = {}
        # Partitions that the checkpoints on disk have a word on.
        self._saved: set[TopicPartition] = set()

    async def run_once(self, stable_offsets: Mapping[TopicPartition, int], pace: Pace) -> bool:
        """Whether a log was compacted. Only what lies below its last stable offset may be."""
        chosen = self._choose(stable_offsets)
        if chosen is None:
            return False
        log, found = chosen
        run = self._prepare(log, found, pace)
        try:
            # Below the point that is saved, and not just known, recovery does not look.
            await self._store.save_recovery_points()
            if await self._compact(run, pace):
                return True
            logger.info("%s changed while it was compacted, which begins anew", log.partition)
        except JobLost as error:
            logger.warning("%s: %s", log.partition, error)
        except KafkaError as error:
            if log.directory.failure is None and self._is_as_it_was(run):
                self.given_up[log.partition] = error.message
                logger.error(
                    "%s cannot be compacted, and will not be until the node is restarted: %s",
                    log.partition,
                    error.message,
                )
        except OSError as error:
            self._failed(run, error)
        await self._tidy(run)
        return False

    # Choosing

    def _choose(self, stable_offsets: Mapping[TopicPartition, int]) -> tuple[Log, Cleanable] | None:
        """The one with the largest share of dirty bytes."""
        best: tuple[Log, Cleanable] | None = None
        for partition, stable in stable_offsets.items():
            log = self._store.logs.get(partition)
            if log is None or not self._may_compact(log):
                continue
            found = self.cleanable(log, stable)
            if found.is_due(log.config) and (best is None or found.ratio > best[1].ratio):
                best = log, found
        return best

    def _may_compact(self, log: Log) -> bool:
        """A log that is copied to another directory is left alone: the copy would have the records
        of a key and miss its tombstone."""
        return (
            log.config.compacts
            and len(log.segments) > 1
            and log.directory.failure is None
            and log.partition not in self.given_up
            and log.partition not in self._store.moves.under_way
        )

    def cleanable(self, log: Log, stable_offset: int) -> Cleanable:
        """What is not yet on disk is not compacted: recovery takes a gap there for lost records."""
        first_dirty = log.clean_offset
        if first_dirty is None or not log.start_offset <= first_dirty <= log.end_offset:
            first_dirty = log.start_offset
        bound = min(stable_offset, log.flushing.recovery_point)
        return cleanable(log.segments, log.config, first_dirty, bound, self._world.clock.now_ms())

    def _prepare(self, log: Log, found: Cleanable, pace: Pace) -> _Run:
        config = log.config
        ends = [segment.base_offset for segment in log.segments[1:]]
        wanted = [
            (segment, end)
            for segment, end in zip(log.segments, ends, strict=False)
            if end <= found.end_offset
        ]
        extents = [
            SegmentExtent(
                one.base_offset, end, one.size, max(one.offset_index.size, one.time_index.size)
            )
            for one, end in wanted
        ]
        job = Job(
            id=self._world.rng.uuid().hex,
            directory=log.path,
            segments=tuple(extents),
            first_dirty_offset=found.first_dirty_offset,
            now_ms=self._world.clock.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            map_bytes=pace.map_bytes,
            aborted=tuple(log.aborted_transactions(extents[0].base_offset, found.end_offset)),
            producers=_last_of_producers(log.producers, found.end_offset),
        )
        return _Run(log, {segment.base_offset: segment for segment, _end in wanted}, log.cuts, job)

    # Compacting

    async def _compact(self, run: _Run, pace: Pace) -> bool:
        clock, started, processed = self._world.clock, self._world.clock.monotonic(), 0
        step: Job | str = run.job
        while True:
            done = await self._world.offload.process(advance, step)
            step = run.job.id
            processed += done.processed_bytes
            for cleaned in done.cleaned:
                if not self._is_as_it_was(run, cleaned):
                    return False
                await self._swap_in(run, cleaned)
            if done.clean_offset is not None:
                break
            await asyncio.sleep(
                max(0.0, started + processed / pace.max_bytes_per_second - clock.monotonic())
            )
        run.log.clean_offset = done.clean_offset
        await self.save()
        seconds = clock.monotonic() - started
        logger.info(
            (
                "%s: compacted up to offset %d, %d of %d records left, %.1f MB read and written in "
                "%.1f s"
            ),
            run.log.partition,
            done.clean_offset,
            run.after,
            run.before,
            processed / 1e6,
            seconds,
        )
        return True

    def _is_as_it_was(self, run: _Run, cleaned: Cleaned | None = None) -> bool:
        log = run.log
        if (
            self._store.logs.get(log.partition) is not log
            or log.path != run.job.directory
            or log.cuts != run.cuts
        ):
            return False
        if not self._may_compact(log):
            return False
        if cleaned is None:
            return True
        old = [run.segments[base] for base in cleaned.bases]
        number = next(
            (number for number, segment in enumerate(log.segments) if segment is old[0]), None
        )
        in_place = number is not None and log.segments[number : number + len(old)] == old
        return in_place and cleaned.end_offset <= log.flushing.recovery_point

    async def _swap_in(self, run: _Run, cleaned: Cleaned) -> None:
        log = run.log
        for path in log.replace_segments(
            [run.segments[base] for base in cleaned.bases], cleaned.size, run.job.id
        ):
            self._store.doom(path, log.config.file_delete_delay_ms)
        run.before += cleaned.records_before
        run.after += cleaned.records_after
        await self._world.offload.thread(self._world.disk.sync_dir, log.path)

    def _failed(self, run: _Run, error: OSError) -> None:
        """A file that is gone went with its partition or by retention, and a full disk may have
        room again: both are tried another time, and so is what a child did that died. Anything else
        is the disk's fault."""
        log = run.log
        if (
            isinstance(error, ChildProcessError)
            or not self._is_as_it_was(run)
            or error.errno in _SOME_OTHER_TIME
        ):
            logger.warning(
                "%s could not be compacted, which is tried again: %s", log.partition, error
            )
            return
        log.directory.fail(f"compacting {log.partition}", error)

    async def _tidy(self, run: _Run) -> None:
        """What the child wrote, and nobody will use, need not take up room until the next start."""
        await self._world.offload.process(abandon, run.job.id)
        await self._world.offload.thread(_remove_cleaned, self._world.disk, run.job.directory)

    # The checkpoint

    def opened(self, directory: LogDirectory, clean_offsets: Mapping[TopicPartition, int]) -> None:
        """What cleaner-offset-checkpoint of a directory says of its logs, which are open now."""
        self._saved |= clean_offsets.keys()
        for partition, offset in clean_offsets.items():
            log = self._store.logs.get(partition)
            if log is not None and log.directory is directory:
                log.clean_offset = offset

    def created(self, partition: TopicPartition) -> None:
        """What the checkpoint says of a deleted partition must not be taken for a word on one that
        was made under its name since."""
        if partition in self._saved:
            self._saved.discard(partition)
            for directory, logs in self._clean_logs():
                with contextlib.suppress(
                    OSError
                ):  # the next save comes upon it as well, and says so
                    text = offsets_text([(log.partition, log.clean_offset or 0) for log in logs])
                    self._world.disk.replace(f"{directory.path}/{names.CLEAN_OFFSETS}", text)

    async def save(self) -> None:
        while True:
            self._saved = {log.partition for _directory, logs in self._clean_logs() for log in logs}
            await self._store.checkpoints.save(
                names.CLEAN_OFFSETS, self._clean_logs(), lambda log: log.clean_offset or 0
            )
            # One may have been deleted, and made anew, since the words of this save were chosen.
            if all(
                partition in self._store.logs
                and self._store.logs[partition].clean_offset is not None
                for partition in self._saved
            ):
                return

    def _clean_logs(self) -> list[tuple[LogDirectory, list[Log]]]:
        logs = [log for log in self._store.logs.values() if log.clean_offset is not None]
        return [
            (directory, [log for log in logs if log.directory is directory])
            for directory in self._store.online
        ]


def _last_of_producers(states: ProducerStates, end_offset: int) -> dict[int, LastOfProducer]:
    """Of those whose last batch lies below an offset."""
    last = {
        producer_id: LastOfProducer(
            producer.batches[-1].last_offset if producer.batches else None, producer.epoch
        )
        for producer_id, producer in states.producers.items()
    }
    return {
        producer_id: one
        for producer_id, one in last.items()
        if one.last_data_offset is None or one.last_data_offset < end_offset
    }


def _remove_cleaned(disk: Disk, directory: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # the partition was deleted or moved
        for name in disk.list(directory):
            if name.endswith(names.CLEANED):
                disk.remove(f"{directory}/{name}")
