"""The compactions of a store: chooses a log, lets a child process compact it slice by slice, and
swaps in the result.

The log stays in service during the compaction. Any change to it in between (truncated, moved,
deleted, segments expired) is detected before a swap; the child's output is then discarded, and the
log is compacted again later. Groups of segments are swapped in order, so that a part of them is
also a valid log.
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
from penstock.limits import RETENTION_LOGS_A_TURN
from penstock.log import names
from penstock.log.compaction.cleanable import (
    Cleanable,
    SegmentExtent,
    cleanable,
    depends_on_times,
)
from penstock.log.compaction.filter import LastOfProducer
from penstock.log.compaction.work import Cleaned, Job, JobLost, abandon, advance
from penstock.log.directory import LogDirectory, TooManyFiles, unless_offline
from penstock.log.log import Log
from penstock.log.producers.state import ProducerStates
from penstock.log.segment import Segment, TimesUnknown
from penstock.log.times import learn_times
from penstock.world import TOO_MANY_FILES, Disk, World

if TYPE_CHECKING:
    from penstock.log.saved_offsets import Offsets
    from penstock.log.store import LogStore

logger = logging.getLogger(__name__)

_RETRIED_ERRNOS = frozenset({errno.ENOENT, errno.ENOSPC, errno.EDQUOT}) | TOO_MANY_FILES


@dataclass(frozen=True, slots=True)
class Pace:
    """The limits of compaction: memory for keys, and bytes read and written per second."""

    map_bytes: int = 128 * 1024 * 1024
    max_bytes_per_second: float = float("inf")


@dataclass(slots=True, eq=False)
class _Run:
    """One compaction of a log, and the state of the log when it began."""

    log: Log
    segments: dict[int, Segment]
    truncation_count: int
    job: Job
    before: int = 0
    after: int = 0


class Compactions:
    """`run_once` compacts the log that needs it most, if any. One at a time."""

    def __init__(self, store: LogStore, world: World) -> None:
        self._store = store
        self._world = world
        # Logs that are not compacted any more because they are damaged, with the reason.
        self.uncleanable: dict[TopicPartition, str] = {}

    def forget(self, partition: TopicPartition) -> None:
        """Forget a deleted log: another one may be created under its name."""
        self.uncleanable.pop(partition, None)

    async def run_once(self, stable_offsets: Offsets, pace: Pace) -> bool:
        """Compact one log below its last stable offset. Return False if none was compacted."""
        log = await self._choose(stable_offsets)
        run = None if log is None else self._prepare(log, stable_offsets, pace)
        if log is None or run is None:
            return False
        try:
            # Recovery does not read below the saved recovery point, so it must be saved before gaps
            # are made.
            await self._store.offsets.save_recovery_points()
            if await self._compact(run, pace):
                return True
            logger.info("%s changed during its compaction, which starts again later", log.partition)
        except JobLost as error:
            logger.warning("%s: %s", log.partition, error)
        except KafkaError as error:
            if log.directory.failure is None and self._is_unchanged(run):
                self._give_up(log, error)
        except OSError as error:
            self._failed(run, error)
        self._store.due.counts.compactions_failed += 1
        await self._clean_up(run)
        return False

    # Choosing

    async def _choose(self, stable_offsets: Offsets) -> Log | None:
        """Return the log with the largest ratio of dirty bytes, of those that were not found
        clean."""
        best: tuple[Log, float] | None = None
        for number, log in enumerate(list(self._store.due.compaction), 1):
            if number % RETENTION_LOGS_A_TURN == 0:
                await asyncio.sleep(0)
            if not self._has_sealed_segments(log):
                self._store.due.compaction.pop(log, None)
                continue
            if depends_on_times(log.config) and self._may_compact(log):
                with unless_offline(log.directory):
                    await learn_times(log, self._world, log.segments[:-1])
            found = self._find_due(log, stable_offsets)
            if found is not None and (best is None or found.ratio > best[1]):
                best = log, found.ratio
        return None if best is None else best[0]

    def _has_sealed_segments(self, log: Log) -> bool:
        return (
            self._store.logs.get(log.partition) is log
            and log.config.compacts
            and len(log.segments) > 1
        )

    def _find_due(self, log: Log, stable_offsets: Offsets) -> Cleanable | None:
        """Return what can be compacted; None if it is too little. A log that cannot be read must
        not end the compaction of others."""
        stable_offset = stable_offsets.get(log.partition)
        if stable_offset is None or not self._may_compact(log):
            return None  # it may have changed while another one was examined
        try:
            found = self.cleanable(log, stable_offset)
        except TimesUnknown:
            return None  # a segment was replaced while its timestamps were read
        except KafkaError as error:
            self._give_up(log, error)
            return None
        except OSError as error:
            log.directory.fail(f"compacting {log.partition}", error)
            return None
        if found.is_due(log.config):
            return found
        if found.end_offset == log.active.base_offset and not depends_on_times(log.config):
            # Only another sealed segment can change that, and marks the log again.
            self._store.due.compaction.pop(log, None)
        return None

    def _give_up(self, log: Log, error: KafkaError) -> None:
        if log.directory.failure is None and not isinstance(error, TooManyFiles):
            log.mark_damaged(error)
            self.uncleanable[log.partition] = error.message
            logger.error(
                "cannot compact %s; not retrying before the broker is restarted: %s",
                log.partition,
                error.message,
            )

    def _may_compact(self, log: Log) -> bool:
        """Return True if a log may be compacted. A log that is being moved may not: the copy would
        have the records of a key and miss its tombstone."""
        return (
            self._has_sealed_segments(log)
            and log.directory.failure is None
            and log.damage is None
            and log.partition not in self.uncleanable
            and log.partition not in self._store.moves.under_way
        )

    def cleanable(self, log: Log, stable_offset: int) -> Cleanable:
        """Return what can be compacted. Unsynced data is not: recovery takes a gap there for lost
        records."""
        first_dirty = log.clean_offset
        if first_dirty is None or not log.start_offset <= first_dirty <= log.end_offset:
            first_dirty = log.start_offset
        bound = min(stable_offset, log.flushing.recovery_point)
        return cleanable(log.segments, log.config, first_dirty, bound, self._world.clock.now_ms())

    def _prepare(self, log: Log, stable_offsets: Offsets, pace: Pace) -> _Run | None:
        """Return the compaction of the chosen log; None if it cannot be compacted after all."""
        found = self._find_due(log, stable_offsets)
        if found is None:
            return None
        try:
            return self._new_run(log, found, pace)
        except KafkaError as error:
            self._give_up(log, error)
        except OSError as error:
            log.directory.fail(f"compacting {log.partition}", error)
        return None

    def _new_run(self, log: Log, found: Cleanable, pace: Pace) -> _Run:
        config = log.config
        ends = [segment.base_offset for segment in log.segments[1:]]
        dirty = [
            (segment, end)
            for segment, end in zip(log.segments, ends, strict=False)
            if end <= found.end_offset
        ]
        extents = [
            SegmentExtent(
                segment.base_offset,
                end,
                segment.size,
                max(segment.offset_index.size, segment.time_index.size),
            )
            for segment, end in dirty
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
        return _Run(
            log,
            {segment.base_offset: segment for segment, _end in dirty},
            log.truncation_count,
            job,
        )

    # Compacting

    async def _compact(self, run: _Run, pace: Pace) -> bool:
        clock, started, processed = self._world.clock, self._world.clock.monotonic(), 0
        step: Job | str = run.job
        while True:
            done = await self._world.offload.background(advance, step)
            step = run.job.id
            processed += done.processed_bytes
            for cleaned in done.cleaned:
                if not self._is_unchanged(run, cleaned):
                    return False
                await self._swap_in(run, cleaned)
            if done.clean_offset is not None:
                break
            await asyncio.sleep(
                max(0.0, started + processed / pace.max_bytes_per_second - clock.monotonic())
            )
        run.log.clean_offset = done.clean_offset
        await self._store.offsets.save_clean_offsets()
        seconds = clock.monotonic() - started
        counts = self._store.due.counts
        counts.compactions += 1
        counts.compaction_s += seconds
        counts.compacted_bytes += processed
        counts.removed_records += run.before - run.after
        logger.info(
            "%s: compacted up to offset %d, %d of %d records left, %.1f MB read and written in "
            "%.1f s",
            run.log.partition,
            done.clean_offset,
            run.after,
            run.before,
            processed / 1e6,
            seconds,
        )
        return True

    def _is_unchanged(self, run: _Run, cleaned: Cleaned | None = None) -> bool:
        log = run.log
        if (
            self._store.logs.get(log.partition) is not log
            or log.path != run.job.directory
            or log.truncation_count != run.truncation_count
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
            self._store.remove_later(path, log.config.file_delete_delay_ms)
        run.before += cleaned.records_before
        run.after += cleaned.records_after
        await self._world.offload.thread(self._world.disk.sync_dir, log.path)

    def _failed(self, run: _Run, error: OSError) -> None:
        """Handle a disk error. A missing file was removed with its partition or by retention, and a
        full disk may have space later: both are retried, and so is the work of a child process that
        died. Any other error takes the directory offline."""
        log = run.log
        if (
            isinstance(error, ChildProcessError)
            or not self._is_unchanged(run)
            or error.errno in _RETRIED_ERRNOS
        ):
            logger.warning("cannot compact %s, retrying: %s", log.partition, error)
            return
        log.directory.fail(f"compacting {log.partition}", error)

    async def _clean_up(self, run: _Run) -> None:
        """Remove the files that the child process wrote in vain."""
        with contextlib.suppress(OSError):  # the child died, or cannot be started
            await self._world.offload.background(abandon, run.job.id)
        await self._world.offload.thread(_remove_cleaned, self._world.disk, run.job.directory)

    # The checkpoint

    def opened(self, directory: LogDirectory, clean_offsets: Mapping[TopicPartition, int]) -> None:
        """Apply the cleaner-offset-checkpoint of a directory to its open logs."""
        for partition, offset in clean_offsets.items():
            log = self._store.logs.get(partition)
            if log is not None and log.directory is directory:
                log.clean_offset = offset


def _last_of_producers(states: ProducerStates, end_offset: int) -> dict[int, LastOfProducer]:
    """Return the last batch of each producer whose last batch is below an offset."""
    last = {
        producer_id: LastOfProducer(
            producer.batches[-1].last_offset if producer.batches else None, producer.epoch
        )
        for producer_id, producer in states.producers.items()
    }
    return {
        producer_id: batch
        for producer_id, batch in last.items()
        if batch.last_data_offset is None or batch.last_data_offset < end_offset
    }


def _remove_cleaned(disk: Disk, directory: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # the partition was deleted or moved
        for name in disk.list(directory):
            if name.endswith(names.CLEANED):
                disk.remove(f"{directory}/{name}")
