"""One partition on one disk: appended to at the end, cut at either end. How it is read is in
`reading`.

Appends and reads are synchronous and touch the page cache only; what blocks (fdatasync) is awaited
in `flush`. The log is told where to truncate, what epoch it is and how far a reader may see: it
decides nothing about replication. End offsets are exclusive.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.config.topic import LogConfig, TimestampType
from penstock.errors import ErrorCode, KafkaError, invariant
from penstock.ids import NO_TIMESTAMP, Buffer, TopicPartition
from penstock.limits import MAX_BATCH_BYTES, MAX_RELATIVE_OFFSET
from penstock.log import names
from penstock.log.admission import check_producers, check_timestamps, with_offsets
from penstock.log.compaction.swap import swap_in
from penstock.log.directory import LogDirectory, guarded
from penstock.log.files import OpenFiles
from penstock.log.flush import Flush
from penstock.log.leader_epochs import LeaderEpochs
from penstock.log.producers.replay import (
    apply_batch,
    end_markers,
    load_producers,
    save_snapshot,
    snapshot_offsets,
    snapshot_path,
)
from penstock.log.producers.state import EndMarker, ProducerStates
from penstock.log.reading import ReadableLog
from penstock.log.segment import Segment
from penstock.records.batch import BatchHeader, validate
from penstock.world import World


class Appended(NamedTuple):
    """What became of an append. A duplicate has the offsets that it was first given."""

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    duplicate: bool = False


@dataclass(slots=True)
class LogState:
    """What a log is opened with: found on disk by `open.open_log`."""

    segments: list[Segment]
    start_offset: int
    end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerStates


class Log(ReadableLog):
    """A partition's log. Made by `open.open_log`."""

    def __init__(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        path: str,
        directory: LogDirectory,
        files: OpenFiles,
        world: World,
        config: LogConfig,
        state: LogState,
    ) -> None:
        super().__init__(partition, directory, state.segments, state.start_offset, state.end_offset)
        self.topic_id = topic_id
        self.path = path
        self.config = config
        self.epochs = state.epochs
        self.producers = state.producers
        # How often the log was cut: whoever copies it must then begin anew.
        self.cuts = 0
        # Below this offset the log was compacted: every key has one record there. None where it
        # never was.
        self.clean_offset: int | None = None
        self._files = files
        self._clock = world.clock
        self._jitter_ms = (
            world.rng.randrange(config.segment_jitter_ms) if config.segment_jitter_ms > 0 else 0
        )
        self.flushing = Flush(self, files, world, state.recovery_point)

    # Appending

    @guarded
    def append_as_leader(
        self, records: Buffer, leader_epoch: int, *, from_client: bool = True
    ) -> Appended:
        """Gives offsets to batches of a client (exactly one) or of this node itself, and appends
        them."""
        config = self.config
        headers = validate(
            records, max_batch_bytes=config.max_message_bytes, from_client=from_client
        )
        stamped = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        if len(records) > config.segment_bytes:
            message = (
                f"{len(records)} bytes are more than a segment of {self.partition} holds "
                f"({config.segment_bytes}, segment.bytes)"
            )
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        # A client writes no markers: that was checked.
        markers: list[EndMarker | None] = [None] if from_client else end_markers(headers, records)
        duplicate = check_producers(self.producers, headers, markers)
        if duplicate is not None:
            return Appended(
                duplicate.first_offset,
                duplicate.last_offset + 1,
                duplicate.timestamp if stamped else NO_TIMESTAMP,
                duplicate=True,
            )
        now_ms, base_offset = self._clock.now_ms(), self.end_offset
        if not stamped:
            check_timestamps(config, headers, now_ms)
        view, headers = with_offsets(
            records, headers, base_offset, leader_epoch, now_ms if stamped else None
        )
        self._append(view, headers, markers, now_ms)
        return Appended(base_offset, self.end_offset, now_ms if stamped else NO_TIMESTAMP)

    @guarded
    def append_as_follower(self, records: Buffer) -> Appended:
        """Appends a leader's batches as they are. They must begin at the log's end, or after it
        where the leader's log was compacted."""
        headers = validate(records, max_batch_bytes=MAX_BATCH_BYTES, from_client=False)
        base_offset = self.end_offset
        if headers and headers[0].base_offset < base_offset:
            message = (
                f"{self.partition}: cannot append offset {headers[0].base_offset} at the "
                f"log's end {base_offset}"
            )
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        if headers:
            self._append(records, headers, end_markers(headers, records), self._clock.now_ms())
        return Appended(base_offset, self.end_offset, NO_TIMESTAMP)

    def _append(
        self, data: Buffer, headers: list[BatchHeader], markers: list[EndMarker | None], now_ms: int
    ) -> None:
        if self._must_roll(len(data), headers[0], headers[-1], now_ms):
            self.roll()
        active = self.segments[-1]
        active.append(data, headers, self.config.index_interval_bytes)
        for header, marker in zip(headers, markers, strict=True):
            if header.leader_epoch != self.epochs.latest:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            apply_batch(self.producers, header, marker, active.txn_index)
        self.end_offset = headers[-1].next_offset

    # Rolling

    def _must_roll(self, size: int, first: BatchHeader, last: BatchHeader, now_ms: int) -> bool:
        active, config = self.segments[-1], self.config
        if active.size == 0:
            return last.last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        return (
            active.is_full_for(
                size, last.last_offset, config.segment_bytes, config.segment_index_bytes
            )
            or active.age_ms(first.max_timestamp, now_ms) > config.max_segment_ms - self._jitter_ms
        )

    @guarded
    def roll(self) -> None:
        """Seals the active segment and begins a new one at the log's end."""
        invariant(
            self.end_offset > self.active.base_offset or self.active.size == 0,
            f"{self.path}: rolling an empty segment onto itself",
        )
        if self.active.base_offset == self.end_offset:
            return
        self.active.seal()
        self.flushing.also += [self.active.offset_index.path, self.active.time_index.path]
        self._snapshot(self.end_offset)
        self._add_segment(self.end_offset)
        self.flushing.wanted = True

    def _add_segment(self, base_offset: int) -> None:
        segment = Segment(
            self._files,
            self.path,
            base_offset,
            active=True,
            created_ms=self._clock.now_ms(),
            size=0,
        )
        segment.reset_indexes()
        if (
            segment.file.size()
        ):  # ext4 writes a file out at its close that was truncated, were it empty before
            segment.file.truncate(0)
        self.segments.append(segment)
        self.flushing.names_changed = True

    def _snapshot(self, offset: int) -> None:
        self.flushing.also.append(save_snapshot(self._files, self.path, offset, self.producers))

    # Cutting

    @guarded
    def truncate_to(self, offset: int) -> None:
        """Drops everything from an offset on: a tail that the leader does not have.
        `LogStore.truncate` calls it and sees to the disk."""
        if offset >= self.end_offset:
            return
        if offset < self.segments[0].base_offset:
            self.restart_at(offset)
            return
        keep = max(bisect_left(self.segments, offset, key=lambda segment: segment.base_offset), 1)
        if keep < len(self.segments):
            self.end_offset = self.segments[keep].base_offset
            self._drop(self.segments[keep:])
            del self.segments[keep:]
            self.active.activate()
        self.end_offset = min(self.batch_start(offset), self.end_offset)
        self.active.truncate(self.end_offset)
        self._after_truncation()
        for snapshot in snapshot_offsets(self._files.disk, self.path):
            if snapshot > self.end_offset:
                self._files.disk.remove(snapshot_path(self.path, snapshot))
        self.producers = load_producers(
            self._files.disk, self.path, self.segments, self.end_offset, []
        )

    @guarded
    def restart_at(self, offset: int) -> None:
        """Drops everything and goes on from an offset. `LogStore.restart` calls it and sees to the
        disk."""
        self._drop(self.segments)
        self.segments.clear()
        for snapshot in snapshot_offsets(self._files.disk, self.path):
            self._files.disk.remove(snapshot_path(self.path, snapshot))
        self.start_offset = self.end_offset = offset
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self.producers.end_offset = offset
        self._add_segment(offset)
        self._after_truncation()

    def _after_truncation(self) -> None:
        self.cuts += 1
        self.clean_offset = (
            None if self.clean_offset is None else min(self.clean_offset, self.end_offset)
        )
        self.start_offset = min(self.start_offset, self.end_offset)
        self.epochs.truncate_from_end(self.end_offset)
        self.flushing.truncated(self.end_offset)

    def _drop(self, segments: list[Segment]) -> None:
        """The last one first: a crash in between leaves a log without a hole."""
        for segment in reversed(segments):
            for path in segment.paths:
                self._files.forget(path)
                if self._files.disk.exists(path):
                    self._files.disk.remove(path)

    @guarded
    def advance_start(self, offset: int) -> bool:
        """Records before an offset are deleted (DeleteRecords, retention): they are not served from
        here on."""
        if offset > self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                (
                    f"{self.partition} ends at {self.end_offset}: records before {offset} cannot "
                    "be "
                    "deleted"
                ),
            )
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    @guarded
    def retire(self, count: int) -> list[str]:
        """Takes the oldest segments out of the log. Gives their files, renamed, for removal after
        file.delete.delay.ms."""
        if count == 0:
            return []
        if count == len(self.segments):
            self.roll()
        retired, self.segments = self.segments[:count], self.segments[count:]
        first = self.segments[0].base_offset
        self.advance_start(max(first, self.start_offset))
        disk = self._files.disk
        paths = [path for segment in retired for path in segment.paths if disk.exists(path)]
        paths += [
            snapshot_path(self.path, offset)
            for offset in snapshot_offsets(disk, self.path)
            if offset < first
        ]
        for path in paths:
            self._files.forget(path)
            disk.rename(path, path + names.DELETED)
        return [path + names.DELETED for path in paths]

    # Compacting

    @guarded
    def replace_segments(self, old: list[Segment], size: int, unique: str) -> list[str]:
        """Puts a compacted segment, whose files lie beside them, in the place of neighbours. Gives
        the renamed files of these. `Compactions` calls it and sees to the disk."""
        first, last = self.segments.index(old[0]), self.segments.index(old[-1])
        invariant(
            self.segments[first : last + 1] == old and last + 1 < len(self.segments),
            f"{self.path}: not what was compacted",
        )
        base, end = old[0].base_offset, self.segments[last + 1].base_offset
        doomed = swap_in(self._files, self.path, base, end, unique)
        new = Segment(
            self._files, self.path, base, active=False, created_ms=old[-1].created_ms, size=size
        )
        self.segments[first : last + 1] = [new]
        return doomed

    # Moving

    @guarded
    def relocate(self, other: Log, path: str) -> None:
        """Goes on with the segments of another log that has come to hold the same records, and
        whose directory is at this path now. `Moves` calls it and sees to the disk."""
        for segment in other.segments:
            segment.relocate(path)
        self.flushing.relocate(other.flushing, other.path, path)
        self.path, self.directory, self.segments = path, other.directory, other.segments
        self._snapshot(self.end_offset)

    # Ending

    @guarded
    def save(self) -> None:
        """Writes what recovery would rebuild, for a clean shutdown: called after the last flush,
        when nothing is appended any more."""
        self.active.save_indexes()
        self._snapshot(self.end_offset)
        self.flushing.save_epochs()
