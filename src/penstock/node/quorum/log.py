"""The metadata log `__cluster_metadata-0` on disk, with its snapshots: a `raft.log.RaftLog`."""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass, replace

from penstock.config import cluster_settings as settings
from penstock.config.node import NodeConfig
from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    NO_LEADER_EPOCH,
    Buffer,
    TopicPartition,
)
from penstock.limits import MAX_METADATA_BATCH_BYTES, METADATA_FETCH_BYTES
from penstock.log.directory import LogDirectory
from penstock.log.files import OpenFiles
from penstock.log.flush import save_epochs, sync_log, truncating
from penstock.log.log import Log
from penstock.log.open import CheckpointedOffsets, create_log, open_log
from penstock.log.producers.state import ProducerStates
from penstock.log.recovery import REFETCH
from penstock.node.quorum.batches import build_batches, leader_change_batch, voters_batch
from penstock.node.quorum.snapshot_file import SnapshotDamaged
from penstock.node.quorum.snapshot_store import BOOTSTRAP, RETAINED_SNAPSHOTS, SnapshotStore
from penstock.node.quorum.voter_records import replay_control
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.voters import VotersEntry, VoterSet, VoterSetHistory
from penstock.records.batch import BatchHeader, batches, crc_matches
from penstock.world import World

PARTITION = TopicPartition(METADATA_TOPIC, 0)
# Not Kafka's: an offset below which the log was committed and synced at some time, and a checksum.
# A corrupt batch below it is damage, not a torn tail (rules 20 and 21).
COMMITTED = ".penstock_committed"
_FORMAT_AGAIN = (
    "Empty the metadata directory and format it again: the node then fetches all metadata from the "
    "other controllers"
)

logger = logging.getLogger(__name__)


def metadata_log_path(directory: str) -> str:
    return f"{directory}/{PARTITION}"


@dataclass(frozen=True, slots=True)
class MetadataLogConfig:
    """Kafka's settings of the metadata log. A negative retention sets no limit."""

    segment_bytes: int = settings.METADATA_LOG_SEGMENT_BYTES.default_value()
    segment_ms: int = settings.METADATA_LOG_SEGMENT_MS.default_value()
    retention_bytes: int = settings.METADATA_MAX_RETENTION_BYTES.default_value()
    retention_ms: int = settings.METADATA_MAX_RETENTION_MS.default_value()

    @staticmethod
    def of(config: NodeConfig) -> MetadataLogConfig:
        return MetadataLogConfig(
            config[settings.METADATA_LOG_SEGMENT_BYTES],
            config[settings.METADATA_LOG_SEGMENT_MS],
            config[settings.METADATA_MAX_RETENTION_BYTES],
            config[settings.METADATA_MAX_RETENTION_MS],
        )


class MetadataLog:
    """Call `open` first. `voters` are those of the configuration, which count while the log has
    none."""

    def __init__(
        self,
        world: World,
        directory: LogDirectory,
        config: MetadataLogConfig,
        voters: tuple[int, ...] = (),
    ) -> None:
        self.voter_sets = VoterSetHistory(VoterSet.static(voters))
        self._retention = config
        self._world = world
        self._directory = directory
        self._files = OpenFiles(world.disk)
        self._config = replace(
            LogConfig(),
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            max_message_bytes=MAX_METADATA_BATCH_BYTES,
            retention_ms=-1,
        )
        self.path = metadata_log_path(directory.path)
        self.snapshots = SnapshotStore(world, directory, self.path)
        self.committed = 0
        # The size of a fetch response, which has at least one batch.
        self.fetch_max_bytes = METADATA_FETCH_BYTES
        self.bytes_since_snapshot = 0
        # The snapshot that replaces the records below the log start offset.
        self._start_snapshot: OffsetAndEpoch | None = None
        self._log: Log
        self.is_open = False

    async def open(self) -> None:
        """Recover the log and sync it.

        This node may have acknowledged records that were not synced when it crashed, so everything
        that recovery keeps must be on disk before the node acknowledges it again.
        """
        disk = self._world.disk
        if disk.exists(self.path):
            self.snapshots.open()
            await self._set_damaged_aside()
            self.committed = self._read_committed()
            try:
                self._log = await self._recover()
            except KafkaError as error:
                message = error.message.replace(REFETCH, _FORMAT_AGAIN)
                raise KafkaError(error.code, message) from error
        else:
            self._log = create_log(
                PARTITION,
                METADATA_TOPIC_ID,
                self._directory,
                self._files,
                self._world,
                self._config,
            )
        self.is_open = True
        self.bytes_since_snapshot = self._log.size
        await self._log.flushing.all()
        await self._world.offload.thread(
            sync_log, disk, self.path, [self._log.active.file], [self.path, self._directory.path]
        )
        latest = self.snapshots.latest
        if latest is not None and not self._reaches(latest):
            await self.truncate_to_snapshot(latest, await self.snapshots.voters(latest))
        if self._log.start_offset > 0 or len(self.snapshots.all) >= RETAINED_SNAPSHOTS:
            await self._start_at_snapshot()
        await self._check()

    async def _check(self) -> None:
        """Read the whole log, and the voters in it. A damaged record that the latest snapshot
        covers is given up with all before it. KafkaError: there is a later one.

        Recovery reads only what is above the committed offset, and the loader what is above the
        latest snapshot. A leader that has damaged records would serve them forever, and a replica
        that needs them would never catch up (rule 20).
        """
        while True:
            damaged, controls = await self._world.offload.thread(self._first_damage)
            if damaged is None:
                await self._read_voters(controls)
                return
            latest = self.snapshots.latest
            message = f"{self.path} is damaged: the batch at offset {damaged} has a wrong "
            if latest is None or latest.offset <= damaged:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{message}CRC, offset or leader epoch. Empty the metadata directory and "
                    "format it again: the node then fetches all metadata from the other "
                    "controllers",
                )
            logger.error(
                "%sCRC, offset or leader epoch. The snapshot at offset %d replaces it",
                message,
                latest.offset,
            )
            self._advance_start(latest)
            await self.snapshots.remove([older for older in self.snapshots.all if older != latest])

    async def _read_voters(self, controls: list[tuple[BatchHeader, bytes]]) -> None:
        """Read the voters of the latest snapshot, or of the bootstrap checkpoint, and those of the
        control batches after it."""
        latest = self.snapshots.latest
        if latest is not None:
            self.voter_sets.restart(latest.offset - 1, await self.snapshots.voters(latest))
        elif self.snapshots.has_bootstrap and self._log.start_offset == 0:
            self.voter_sets.restart(-1, await self._bootstrap_voters())
        for header, batch in controls:
            replay_control(self.voter_sets, batch, header)

    async def _bootstrap_voters(self) -> VotersEntry | None:
        try:
            return await self.snapshots.voters(BOOTSTRAP)
        except SnapshotDamaged as error:
            message = (
                f"{error.message}. It has the first voters of the quorum: empty the metadata "
                "directory and format it again"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error

    def _first_damage(self) -> tuple[int | None, list[tuple[BatchHeader, bytes]]]:
        """Return the offset of the first damaged batch, and the control batches before it. Leader
        epochs, which no CRC covers, are compared with the checkpoint of leader epochs."""
        log = self._log
        controls: list[tuple[BatchHeader, bytes]] = []
        position = log.start_offset
        while position < log.end_offset:
            part = log.read(position, METADATA_FETCH_BYTES, below=log.end_offset)
            before, data = position, b"" if part is None else part.read()
            for at, header in batches(data):
                if (
                    header.base_offset > position
                    or not crc_matches(data, at, header)
                    or header.leader_epoch != log.epochs.epoch_at(max(header.base_offset, before))
                ):
                    return position, controls
                if header.is_control:
                    controls.append((header, data[at : at + header.size]))
                position = max(position, header.next_offset)
            if position == before:
                return position, controls
        return None, controls

    async def _set_damaged_aside(self) -> None:
        """Set damaged snapshots aside until the latest is an intact one, or none is left."""
        while (latest := self.snapshots.latest) is not None:
            try:
                await self.snapshots.check(latest)
            except SnapshotDamaged as error:
                message = "%s. It is set aside; the previous snapshot or the log is used instead"
                logger.error(message, error.message)
                await self.snapshots.set_aside(latest)
            else:
                return

    def _reaches(self, snapshot: OffsetAndEpoch) -> bool:
        """Return True if the log continues the snapshot.

        Otherwise it ends before, or has a diverging record where the snapshot ends: the node
        crashed after it had downloaded the snapshot, before it installed it.
        """
        epoch = self._log.epochs.epoch_at(snapshot.offset - 1)
        return snapshot.offset <= self._log.end_offset and epoch in (
            snapshot.epoch,
            NO_LEADER_EPOCH,  # the log starts at the snapshot
        )

    async def _start_at_snapshot(self) -> None:
        """Advance the log start offset to the oldest snapshot that is not below it."""
        await self.snapshots.remove(
            [older for older in self.snapshots.all if older.offset < self._log.start_offset]
        )
        oldest = self.snapshots.all[0] if self.snapshots.all else None
        if oldest is None or oldest.offset > self._log.end_offset:
            message = (
                f"{self.path} starts at offset {self._log.start_offset}, but no intact snapshot "
                "covers the offsets before it. Empty the metadata directory and format it again: "
                "the node then fetches all metadata from the other controllers"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self._advance_start(oldest)

    def _advance_start(self, snapshot: OffsetAndEpoch) -> None:
        self._start_snapshot = snapshot
        self._log.advance_start(snapshot.offset)

    async def _recover(self) -> Log:
        """Committed records are never truncated: a log that is damaged below its committed offset
        is refused, unless a snapshot covers all of them."""
        latest = self.snapshots.latest
        point = self.committed if latest is None or latest.offset < self.committed else 0
        found = CheckpointedOffsets(clean=False, recovery_point=point)
        log = await open_log(
            PARTITION, self._directory, self._files, self._world, self._config, found
        )
        if point and (
            not log.epochs.entries or log.epochs.entries[0].start_offset > log.start_offset
        ):
            # The leader epoch checkpoint is lost, and recovery rebuilt it only above the recovery
            # point: recover the whole log.
            found = CheckpointedOffsets(clean=False)
            log = await open_log(
                PARTITION,
                self._directory,
                OpenFiles(self._world.disk),
                self._world,
                self._config,
                found,
            )
        return log

    def _read_committed(self) -> int:
        path = f"{self.path}/{COMMITTED}"
        text = self._world.disk.read(path) if self._world.disk.exists(path) else b""
        digits, _blank, checksum = text.partition(b" ")
        return int(digits) if digits.isdigit() and checksum == _checksum(digits) else 0

    async def save_committed(self, high_watermark: int) -> None:
        committed = min(high_watermark, self.synced_end)
        if committed > self.committed:
            self.committed = committed
            digits = str(committed).encode()
            with self._directory.failing("saving the committed offset of the metadata log"):
                await self._world.offload.thread(
                    self._world.disk.replace,
                    f"{self.path}/{COMMITTED}",
                    digits + b" " + _checksum(digits),
                )

    @property
    def is_offline(self) -> bool:
        return self._directory.failure is not None

    # RaftLog

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self._log.end_offset, self._last_epoch)

    @property
    def _last_epoch(self) -> int:
        if self._log.epochs.entries and self._log.end_offset > self._log.start_offset:
            return self._log.epochs.latest
        start = self.start_snapshot
        return 0 if start is None else start.epoch

    @property
    def synced_end(self) -> int:
        return self._log.flushing.recovery_point

    @property
    def start_snapshot(self) -> OffsetAndEpoch | None:
        """Not necessarily readable: it may have been set aside since."""
        return self._start_snapshot if self._log.start_offset > 0 else None

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots.latest or self.start_snapshot

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        end = self._log.epochs.end_offset_for(epoch, self._log.end_offset)
        return OffsetAndEpoch(end.end_offset, end.epoch) if end.end_offset >= 0 else self.end

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, or of the snapshot that covers it."""
        start = self.start_snapshot
        return (
            start.epoch
            if start is not None and offset < start.offset
            else max(self._log.epochs.epoch_at(offset), 0)
        )

    # Writing

    def append(
        self, records: tuple[object, ...], epoch: int, *, is_atomic: bool = True
    ) -> list[int]:
        """Append records as leader, in one batch if they are atomic. Return the end offset of each
        batch. Raises KafkaError MESSAGE_TOO_LARGE if atomic records do not fit into a batch."""
        ends = []
        built = list(build_batches(records, self._world.clock.now_ms(), is_atomic=is_atomic))
        if sum(map(len, built)) > self._config.segment_bytes - self._log.active.size:
            # Now, when nothing is appended yet: with too many open files it is refused.
            self._log.roll()
        for batch in built:
            appended = self._log.append_as_leader(batch, epoch, from_client=False)
            self.bytes_since_snapshot += len(batch)
            ends.append(appended.end_offset)
        return ends

    def append_leader_change(
        self,
        epoch: int,
        leader_id: int,
        granting_voters: tuple[int, ...],
        new_voters: VoterSet | None = None,
    ) -> None:
        latest, now_ms = self.voter_sets.latest, self._world.clock.now_ms()
        batch = leader_change_batch(
            leader_id, latest.voters.ids, granting_voters, now_ms, new_voters, latest.kraft_version
        )
        appended = self._log.append_as_leader(batch, epoch, from_client=False)
        if new_voters is not None:
            self.voter_sets.add_voters(appended.end_offset - 1, new_voters)

    def append_voters(self, epoch: int, voters: VoterSet, kraft_version: int | None) -> None:
        """Append a VotersRecord, with a kraft.version after its record."""
        batch = voters_batch(voters, kraft_version, self._world.clock.now_ms())
        appended = self._log.append_as_leader(batch, epoch, from_client=False)
        if kraft_version is not None:
            self.voter_sets.add_kraft_version(appended.end_offset - 2, kraft_version)
        self.voter_sets.add_voters(appended.end_offset - 1, voters)

    def append_fetched(self, records: Buffer) -> None:
        self._log.append_as_follower(records)
        self.bytes_since_snapshot += len(records)
        for position, header in batches(records):
            if header.is_control:
                replay_control(self.voter_sets, records, header, position)

    async def sync(self) -> None:
        await self._log.flushing.all()

    async def truncate(self, offset: int) -> None:
        """Truncate to `offset` and sync.

        Later segments go first, so that a crash in between leaves no gap.
        """
        if offset >= self._log.end_offset:
            return
        with (
            self._log.flushing.held_at(self._log.batch_start(offset)),
            truncating(self._world.disk, self.path),
        ):
            for cut in (self._log.segment_end(offset), offset):
                self._log.truncate_to(cut, ProducerStates())  # the metadata log has none
                await self._world.offload.thread(
                    sync_log, self._world.disk, self.path, [self._log.active.file], [self.path]
                )
        self.voter_sets.truncate(self._log.end_offset)
        await self.sync()

    async def truncate_to_snapshot(
        self, snapshot: OffsetAndEpoch, voters: VotersEntry | None = None
    ) -> None:
        """Replace all records by a snapshot, which has these voters: the empty log continues at its
        end offset."""
        with self._log.flushing.held_at(0), truncating(self._world.disk, self.path):
            self._log.restart_at(snapshot.offset)
            self._start_snapshot = snapshot
            await self._world.offload.thread(
                sync_log, self._world.disk, self.path, [self._log.active.file], [self.path]
            )
        self._log.flushing.recovery_point = snapshot.offset
        self.voter_sets.restart(snapshot.offset - 1, voters)
        await self.snapshots.remove([older for older in self.snapshots.all if older != snapshot])
        await self.snapshots.remove_bootstrap()

    async def delete_old(self, applied: int) -> None:
        """Delete the oldest snapshots and the records that the next one covers, until what is left
        is within the retention settings. `applied` is the end offset of the committed image.

        The log start offset advances first, then older snapshots go, then segments: after a crash
        in between, the log still reaches back to a snapshot.
        """
        start = self._log.start_offset
        # The log does not reach a later one, which was downloaded but not installed.
        kept = [each for each in self.snapshots.all if start <= each.offset <= applied]
        while len(kept) >= RETAINED_SNAPSHOTS and self._is_beyond_retention(start, kept):
            if start == kept[0].offset:
                if len(kept) == RETAINED_SNAPSHOTS:
                    break
                kept = kept[1:]
            start = kept[0].offset
        if start == self._log.start_offset:
            return
        self._advance_start(kept[0])
        self.voter_sets.forget_before(start)
        await self.snapshots.remove(
            [each for each in self.snapshots.all if each.offset < self._log.start_offset]
        )
        await self.snapshots.remove_bootstrap()
        for path in self._log.retire(self._segments_before(start)):
            await self._world.offload.thread(self._world.disk.remove, path)

    def _is_beyond_retention(self, start: int, kept: list[OffsetAndEpoch]) -> bool:
        """Return True if a log that starts there, with these snapshots, is too large or too old."""
        retention = self._retention
        segments = self._log.segments[self._segments_before(start) :]
        size = sum(segment.size for segment in segments) + sum(map(self.snapshots.size, kept))
        age_ms = self._world.clock.now_ms() - self.snapshots.modified_ms(kept[0])
        return 0 <= retention.retention_bytes < size or 0 <= retention.retention_ms < age_ms

    def _segments_before(self, offset: int) -> int:
        return sum(segment.base_offset <= offset for segment in self._log.segments[1:])

    async def close(self) -> None:
        await self.sync()
        self._log.save()
        with self._log.directory.failing("writing leader epochs"):
            await save_epochs(self._world, [self._log])
        self._files.forget_all()
        await self._world.offload.thread(self._files.take_forgotten().clear)

    # Reading

    def read(self, offset: int, below: int | None = None) -> bytes:
        """Return whole batches from `offset` on: at least one, however large."""
        part = self._log.read(
            offset, self.fetch_max_bytes, below=self._log.end_offset if below is None else below
        )
        data = b"" if part is None else part.read()
        whole = 0
        for position, header in batches(data):
            whole = position + header.size
        return data[:whole]


def _checksum(digits: bytes) -> bytes:
    """A damaged committed offset must not make uncommitted records committed."""
    return b"%08x" % zlib.crc32(digits)
