"""The log of one partition in one log directory: appends, rolls, truncation, deletion of old
segments.

Appends and reads are synchronous and touch the page cache only; `flush` awaits fdatasync.
`LogSegments` implements lookups and reads. The log decides nothing about replication: callers give
it the leader epoch, the offset to truncate to and the bound of a read. End offsets are exclusive.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.config.topic import LogConfig, TimestampType
from penstock.errors import ErrorCode, KafkaError, invariant
from penstock.ids import NO_TIMESTAMP, Buffer, TopicPartition
from penstock.limits import MAX_BATCH_BYTES, MAX_RELATIVE_OFFSET
from penstock.log import names
from penstock.log.admission import check_producers, check_timestamps, with_offsets
from penstock.log.checkpoint import partition_metadata_text
from penstock.log.compaction.swap import swap_in
from penstock.log.directory import LogDirectory, guarded
from penstock.log.due import DueLogs
from penstock.log.files import FileRange, OpenFiles
from penstock.log.flush import Flush
from penstock.log.index import AbortedTxn
from penstock.log.leader_epochs import LeaderEpochs
from penstock.log.producers.replay import (
    apply_batch,
    end_markers,
    load_producers,
    remove_snapshots,
    save_snapshot,
    snapshot_offsets,
    snapshot_path,
)
from penstock.log.producers.state import EndMarker, ProducerStates
from penstock.log.retention import expired, next_check_ms
from penstock.log.segment import Segment, new_segment
from penstock.log.segments import LogSegments
from penstock.records.batch import BatchHeader, validate
from penstock.world import World

logger = logging.getLogger(__name__)


class Appended(NamedTuple):
    """The result of an append. A duplicate has the offsets of the first append."""

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    duplicate: bool = False


@dataclass(slots=True)
class LogState:
    """The state of a log that `open.open_log` reads from disk."""

    segments: list[Segment]
    start_offset: int
    end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerStates


class Log:
    """A partition's log. `open.open_log` and `open.create_log` make it. `due` is that of its store:
    the log marks itself there when something happens to it."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_files",
        "_jitter_ms",
        "_saved_state",
        "clean_offset",
        "config",
        "damage",
        "directory",
        "due",
        "end_offset",
        "epochs",
        "flushing",
        "is_on_disk",
        "partition",
        "path",
        "producers",
        "segments",
        "start_offset",
        "topic_id",
        "truncation_count",
    )

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
        due: DueLogs | None = None,
        *,
        on_disk: bool = True,
    ) -> None:
        self.is_on_disk = on_disk
        self.due = DueLogs() if due is None else due
        self.partition = partition
        self.directory = directory
        self.segments = LogSegments(state.segments)
        self.start_offset = state.start_offset
        self.end_offset = state.end_offset
        self.topic_id = topic_id
        self.path = path
        self.config = config
        self.epochs = state.epochs
        # The number of truncations. A copy of the log starts again when it changes.
        self.truncation_count = 0
        # The state of the log in which `save` has nothing to write.
        self._saved_state: tuple[str, int, int] | None = None
        # Below this offset the log was compacted: every key has one record. None if it never was.
        self.clean_offset: int | None = None
        # What is wrong with a segment, once that was found. The log is served and not compacted.
        self.damage: str | None = None
        self._files = files
        self._clock = world.clock
        self._jitter_ms = (
            world.rng.randrange(config.segment_jitter_ms) if config.segment_jitter_ms > 0 else 0
        )
        self.producers = self._adopted(state.producers)
        self.flushing = Flush(self, files, world, state.recovery_point)
        self.mark()

    @property
    def active(self) -> Segment:
        return self.segments.active

    @property
    def size(self) -> int:
        return self.segments.size

    def mark_damaged(self, error: KafkaError) -> None:
        """Report that a segment is damaged. The log stays in service: appends and reads of what is
        not damaged continue, and reads of the damaged part fail."""
        if self.damage is None:
            self.damage = error.message
            logger.error(
                "%s is damaged: %s. Its other records are served. If the partition has another "
                "replica, stop the broker, remove the directory %s and start the broker, which "
                "fetches the partition again",
                self.partition,
                error.message,
                self.path,
            )

    def mark(self) -> None:
        """Let periodic work look at the log: it was opened, or its settings or segments changed."""
        if self.size:
            self.due.retention[self] = None
        if self.config.compacts and len(self.segments) > 1:
            self.due.compaction[self] = None
        self.flushing.plan()

    # Reading

    @guarded
    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        below: int,
        at_least_one: bool = True,
        at_once: bool = False,
    ) -> FileRange | None:
        """Return the bytes from the batch that holds an offset on, up to a bound on offsets
        (exclusive) and on bytes; None if there are none.

        The first batch is returned whole even if it is larger than max_bytes; without at_least_one
        it is not returned then. The range ends between batches, unless that would need a read from
        the disk: then the last batch may be cut. With at_once, raises NotInMemory instead
        of blocking on the disk.
        """
        if not self.start_offset <= offset <= self.end_offset:
            message = (
                f"offset {offset} of {self.partition} is not in [{self.start_offset}, "
                f"{self.end_offset}]"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        try:
            return self.segments.read(
                offset,
                max_bytes,
                below=min(below, self.end_offset),
                log_end_offset=self.end_offset,
                at_least_one=at_least_one,
                at_once=at_once,
            )
        except KafkaError as error:
            # Readers retry, so that they would wait in silence.
            self.mark_damaged(error)
            raise

    @guarded
    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that have records between two offsets: a read_committed
        consumer skips them."""
        return self.segments.aborted_transactions(first_offset, end_offset)

    @guarded
    def aborted_in(self, offset: int, found: FileRange, below: int) -> list[AbortedTxn]:
        """Return the aborted transactions that have records in what `read` has just found, or near
        it: a log may have a million."""
        return self.segments.aborted_transactions(
            offset, self.segments.end_of_read(offset, found, below)
        )

    @guarded
    def header_at(self, offset: int, *, at_once: bool = False) -> BatchHeader | None:
        """Return the header of the first batch that ends at or after an offset; None if the offset
        is not in the log. With at_once, raises NotInMemory instead of blocking on the disk."""
        if not self.start_offset <= offset < self.end_offset:
            return None
        return self.segments.header_at(offset, at_once=at_once)

    @guarded
    def batch_start(self, offset: int) -> int:
        """Return the base offset of the batch that holds an offset: a log is truncated between
        batches."""
        return self.segments.batch_start(offset)

    def segment_end(self, offset: int) -> int:
        """Return the end of the segment that holds the offset before this one."""
        number = self.segments.ceiling(offset)
        return self.segments[number].base_offset if number < len(self.segments) else self.end_offset

    @guarded
    def expired(self, high_watermark: int, now_ms: int) -> int:
        """Return how many of the oldest segments retention deletes. Raises TimesUnknown if that
        depends on timestamps that are not known."""
        facts = self.segments.facts(self.end_offset)
        return expired(facts, self.config, self.start_offset, high_watermark, now_ms)

    @guarded
    def next_retention_ms(self) -> float:
        """Return the time before which retention deletes nothing unless the log is marked. Raises
        TimesUnknown if that depends on timestamps that are not known."""
        return next_check_ms(self.segments.facts(self.end_offset), self.config)

    # Appending

    @guarded
    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        from_client: bool = True,
        only_verified: bool = False,
        from_the_first: bool = False,
    ) -> Appended:
        """Assign offsets to batches of a client (exactly one batch) or of this node, and append
        them. With only_verified, a transaction begins only with a confirmed guard. With
        from_the_first, a producer that is not known begins at sequence 0."""
        config = self.config
        headers = validate(
            records, max_batch_bytes=config.max_message_bytes, from_client=from_client
        )
        stamped = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        if len(records) > config.segment_bytes:
            message = (
                f"{len(records)} bytes are more than a segment of {self.partition} may have "
                f"(segment.bytes {config.segment_bytes})"
            )
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        # A client cannot write transaction markers; `validate` has checked it.
        markers: list[EndMarker | None] = [None] if from_client else end_markers(headers, records)
        duplicate = check_producers(
            self.producers,
            headers,
            markers,
            only_verified=only_verified,
            from_client=from_client,
            from_the_first=from_the_first,
        )
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
        """Append a leader's batches unchanged. They begin at the log's end, or after it if the
        leader's log was compacted."""
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
        active = self.segments.active
        for marker in markers:
            if marker is not None and not marker.committed:
                active.txn_index.prepare()  # after the append it is too late to refuse it
        active.append(data, headers, self.config.index_interval_bytes)
        for header, marker in zip(headers, markers, strict=True):
            if header.leader_epoch != self.epochs.latest:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            apply_batch(self.producers, header, marker, active)
        self.end_offset = headers[-1].next_offset
        if not self.flushing.is_planned:
            self.flushing.plan()

    def make_files(self) -> None:
        """Create the directory and the files of a log that has none yet, because nothing was
        appended to it. Raises OSError."""
        if self.is_on_disk:
            return
        self._files.disk.make_dirs(self.path)
        self.active.make_file()
        self.write_topic_id()
        self.is_on_disk = True

    def write_topic_id(self) -> None:
        """Write partition.metadata; durable with the next flush."""
        metadata = f"{self.path}/{names.PARTITION_METADATA}"
        text = partition_metadata_text(self.topic_id)
        self._files.disk.open(metadata, create=True).pwrite(text, 0)
        self.flushing.also += (names.PARTITION_METADATA,)

    # Rolling

    def _must_roll(self, size: int, first: BatchHeader, last: BatchHeader, now_ms: int) -> bool:
        active, config = self.segments.active, self.config
        if active.size == 0:
            if not self.is_on_disk:
                self.make_files()
            active.load_indexes()  # after the append it is too late to refuse it
            self.due.retention[self] = None
            return last.last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        return (
            active.is_full_for(
                size, last.last_offset, config.segment_bytes, config.segment_index_bytes
            )
            or active.age_ms(first.max_timestamp, now_ms) > config.max_segment_ms - self._jitter_ms
        )

    @guarded
    def roll(self) -> None:
        """Seal the active segment and start a new one at the log's end."""
        invariant(
            self.end_offset > self.active.base_offset or self.active.size == 0,
            f"{self.path}: cannot roll an empty segment",
        )
        active = self.active
        if active.base_offset == self.end_offset:
            return
        try:
            active.seal()
            self.flushing.also += tuple(
                names.segment_file(active.base_offset, kind)
                for kind in (names.OFFSET_INDEX, names.TIME_INDEX)
            )
            self._snapshot(self.end_offset)
            self._add_segment(self.end_offset)
        except OSError:
            active.activate()  # with too many open files the log stays in service
            raise
        self.flushing.request()
        self.mark()

    def _add_segment(self, base_offset: int) -> None:
        self.segments.add(new_segment(self._files, self.path, base_offset, self._clock.now_ms()))
        self.flushing.names_changed = True

    def _snapshot(self, offset: int) -> None:
        saved = save_snapshot(self._files, self.path, offset, self.producers)
        self.flushing.also += (saved.removeprefix(f"{self.path}/"),)

    # Truncation and retention

    @guarded
    def truncate_to(self, offset: int, producers: ProducerStates | None = None) -> None:
        """Remove everything from an offset on: a tail that the leader does not have. `Truncations`
        calls `cut_off`, and truncates the file in a thread.

        `producers` is the state at the start of the batch that holds the offset; it is read from
        the log if it is not given.
        """
        self.cut_off(offset, producers)
        self.active.file.truncate(self.active.size)

    @guarded
    def cut_off(self, offset: int, producers: ProducerStates | None = None) -> None:
        """Take everything from an offset on out of the log; the file of the active segment keeps
        its size. If it raises, the call can be repeated."""
        if offset >= self.end_offset:
            return
        if offset < self.segments[0].base_offset:
            self.restart_at(offset)
            return
        end_offset = self.batch_start(offset)
        if producers is None:
            producers = load_producers(self._files.disk, self.path, self.segments, end_offset, [])
        keep = max(self.segments.ceiling(offset), 1)
        if keep < len(self.segments):
            self.segments.delete_from(keep, self._files)
            self.active.activate()
        remove_snapshots(self._files.disk, self.path, above=end_offset)
        self.active.cut_off(end_offset)
        self.end_offset = end_offset
        self._after_truncation()
        producers.unstable.truncated(self.producers.unstable, end_offset)
        self.producers = self._adopted(producers)
        self.producers.end_offset = end_offset

    @guarded
    def restart_at(self, offset: int) -> None:
        """Remove everything and continue at an offset. `Truncations` calls it and syncs the
        disk."""
        self.make_files()
        remove_snapshots(self._files.disk, self.path)
        self.segments.delete_from(0, self._files)
        self.start_offset = self.end_offset = offset
        self.epochs = LeaderEpochs()
        self.producers = self._adopted(ProducerStates())
        self.producers.end_offset = offset
        self._add_segment(offset)
        self._after_truncation()

    def _adopted(self, producers: ProducerStates) -> ProducerStates:
        """Return producer states that are looked at for expiry if they have a producer, in place of
        the current ones."""
        if hasattr(self, "producers"):
            self.due.producers.pop(self.producers, None)
        producers.expiring = self.due.producers
        producers.mark()
        return producers

    def _after_truncation(self) -> None:
        self.truncation_count += 1
        self.clean_offset = (
            None if self.clean_offset is None else min(self.clean_offset, self.end_offset)
        )
        self.start_offset = min(self.start_offset, self.end_offset)
        self.epochs.truncate_from_end(self.end_offset)
        self.flushing.truncated(self.end_offset)
        self.due.changed_checkpoints.add(names.LOG_STARTS)
        self.mark()

    @guarded
    def advance_start(self, offset: int) -> bool:
        """Delete the records before an offset (DeleteRecords, retention). Return False if they are
        deleted already."""
        if offset > self.end_offset:
            message = (
                f"{self.partition} ends at {self.end_offset}: records before {offset} cannot be "
                "deleted"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.due.changed_checkpoints.add(names.LOG_STARTS)
        self.mark()
        return True

    @guarded
    def retire(self, count: int) -> list[str]:
        """Take the oldest segments out of the log. Return their renamed files, to be removed after
        file.delete.delay.ms."""
        if count == 0:
            return []
        if count == len(self.segments):
            self.roll()
        retired = self.segments.remove_oldest(count)
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

    # Compaction

    @guarded
    def replace_segments(self, old: list[Segment], size: int, unique: str) -> list[str]:
        """Replace adjacent segments by a compacted one, whose files are beside them. Return the
        renamed files of the old segments. `Compactions` calls it and syncs the disk."""
        first, last = self.segments.index(old[0]), self.segments.index(old[-1])
        invariant(
            self.segments[first : last + 1] == old and last + 1 < len(self.segments),
            f"{self.path}: the segments changed during the compaction",
        )
        base, end = old[0].base_offset, self.segments[last + 1].base_offset
        removed = swap_in(self._files, self.path, base, end, unique)
        new = Segment(
            self._files, self.path, base, active=False, created_ms=old[-1].created_ms, size=size
        )
        self.segments.replace(old, new)
        self.mark()
        return removed

    # Moves between log directories

    @guarded
    def relocate(self, other: Log, path: str) -> None:
        """Continue with the segments of another log that has the same records, and whose directory
        is now at this path. `Moves` calls it and syncs the disk."""
        for segment in other.segments:
            segment.relocate(path)
        self.flushing.relocate(other.flushing)
        self.directory.log_count -= 1
        other.directory.log_count += 1
        self.path, self.directory, self.segments = path, other.directory, other.segments
        self.is_on_disk = other.is_on_disk
        self.due.changed_checkpoints.update((names.LOG_STARTS, names.HIGH_WATERMARKS))
        self.mark()
        self._snapshot(self.end_offset)

    @guarded
    def save(self) -> None:
        """Write what recovery would otherwise rebuild; called on a clean shutdown after the last
        flush and append, with `flush.save_epochs`."""
        if not self.is_on_disk or self._saved_state == self._state():
            return
        if self.active.size:  # an active segment without records has no indexes
            self.active.save_indexes()
        self._snapshot(self.end_offset)
        self.note_saved()

    def note_saved(self) -> None:
        """The files beside the segments are up to date: the log was opened as a clean shutdown left
        it, or `save` wrote them. While it is idle, they need not be written again."""
        self._saved_state = self._state()

    def _state(self) -> tuple[str, int, int]:
        """Return what changes with every append, truncation and move."""
        return self.path, self.end_offset, self.truncation_count
