"""The metadata log `__cluster_metadata-0` on this node's disk, with its snapshots and the
quorum-state file beside it.

It is what the quorum's machine asks about (`raft.log_view.LogView`) and what carries out its
effects. Never knows roles or votes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import METADATA_TOPIC, METADATA_TOPIC_ID, Buffer, TopicPartition
from penstock.limits import MAX_METADATA_BATCH_BYTES, METADATA_FETCH_BYTES
from penstock.log.directory import LogDirectory
from penstock.log.files import OpenFiles
from penstock.log.flush import cutting, sync_log
from penstock.log.log import Log
from penstock.log.open import Found, create_log, open_log
from penstock.node.quorum.snapshot_files import KEPT, Snapshots
from penstock.protocol.internal.control_records import (
    ControlType,
    LeaderChangeMessage,
    encode_control_key,
    encode_control_value,
)
from penstock.protocol.internal.metadata_records import decode_record, encode_record
from penstock.protocol.internal.quorum_state import (
    QuorumStateData,
    decode_quorum_state,
    encode_quorum_state,
)
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import ElectionState
from penstock.records.batch import BatchHeader, batches, crc_matches
from penstock.records.build import NewRecord, build_batch
from penstock.records.record import records_of
from penstock.world import World

PARTITION = TopicPartition(METADATA_TOPIC, 0)
QUORUM_STATE = "quorum-state"
# Not Kafka's: how much of the log was committed, and synced here, some time ago. A bad batch below
# it is damage, not a torn tail.
COMMITTED = ".penstock_committed"
NOBODY = -1


class QuorumLog:
    """Open it before anything else."""

    def __init__(self, world: World, directory: LogDirectory, segment_bytes: int) -> None:
        self._world = world
        self._directory = directory
        self._files = OpenFiles(world.disk)
        self._config = replace(
            LogConfig(),
            segment_bytes=segment_bytes,
            max_message_bytes=MAX_METADATA_BATCH_BYTES,
            retention_ms=-1,
        )
        self.path = f"{directory.path}/{PARTITION}"
        self.snapshots = Snapshots(world, directory, self.path)
        self.committed = 0
        # How much a replica is given at once; one batch in any case.
        self.fetch_bytes = METADATA_FETCH_BYTES
        # What a snapshot would spare a replica that begins anew.
        self.bytes_since_snapshot = 0
        self._log: Log

    async def open(self) -> None:
        """What is whole of the log is kept, and synced: who reads it may have spoken of it before
        it died."""
        disk = self._world.disk
        if disk.exists(self.path):
            self.snapshots.open()
            self.committed = self._read_committed()
            self._log = await self._open_found()
        else:
            self._log = create_log(
                PARTITION,
                METADATA_TOPIC_ID,
                self._directory,
                self._files,
                self._world,
                self._config,
            )
        self.bytes_since_snapshot = self._log.size
        await self._log.flushing.all()
        await self._world.offload.thread(
            sync_log, disk, self.path, [self._log.active.file], [self.path, self._directory.path]
        )
        latest = self.snapshots.latest
        if latest is not None and (
            latest.offset > self._log.end_offset or latest.epoch > self._log.epochs.latest
        ):
            await self.restart_after(latest)
        if self._log.start_offset > 0 or len(self.snapshots.all) >= KEPT:
            await self._begin_at_snapshot()

    async def _begin_at_snapshot(self) -> None:
        """A log that lost its beginning goes on from the oldest snapshot that is not older."""
        await self.snapshots.remove(
            [older for older in self.snapshots.all if older.offset < self._log.start_offset]
        )
        oldest = self.snapshots.all[0].offset if self.snapshots.all else 0
        if not self._log.start_offset <= oldest <= self._log.end_offset:
            message = (
                f"{self.path} begins at offset {self._log.start_offset}, but no snapshot "
                "tells of what was before"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self._log.advance_start(oldest)

    async def _open_found(self) -> Log:
        """What is committed is not cut: a log that is damaged there is refused, unless a snapshot
        tells of all of it."""
        latest = self.snapshots.latest
        point = self.committed if latest is None or latest.offset < self.committed else 0
        found = Found(clean=False, recovery_point=point)
        log = await open_log(
            PARTITION, self._directory, self._files, self._world, self._config, found
        )
        if point and (
            not log.epochs.entries or log.epochs.entries[0].start_offset > log.start_offset
        ):
            # The list of epochs is lost, and only the part after the point brought its own: all is
            # read.
            found = Found(clean=False)
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
        text = self._world.disk.read(path) if self._world.disk.exists(path) else b"0"
        return int(text) if text.isdigit() else 0

    async def save_committed(self, high_watermark: int) -> None:
        committed = min(high_watermark, self.synced_end)
        if committed > self.committed:
            self.committed = committed
            with self._directory.failing("saving how far metadata is committed"):
                await self._world.offload.thread(
                    self._world.disk.replace, f"{self.path}/{COMMITTED}", str(committed).encode()
                )

    @property
    def is_offline(self) -> bool:
        return self._directory.failure is not None

    # What the machine asks

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
        start = self._log.start_offset
        return (
            next((snapshot for snapshot in self.snapshots.all if snapshot.offset == start), None)
            if start > 0
            else None
        )

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots.latest

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        found = self._log.epochs.end_offset_for(epoch, self._log.end_offset)
        return OffsetAndEpoch(found.end_offset, found.epoch) if found.end_offset >= 0 else self.end

    def epoch_at(self, offset: int) -> int:
        """Of the record at an offset; of the snapshot that the log begins after."""
        start = self.start_snapshot
        return (
            start.epoch
            if start is not None and offset < start.offset
            else max(self._log.epochs.epoch_at(offset), 0)
        )

    # Writing

    def append(self, records: tuple[object, ...], epoch: int) -> int:
        """As leader. Gives the end offset."""
        now_ms = self._world.clock.now_ms()
        batch = build_batch(
            [NewRecord(None, encode_record(record), (), now_ms) for record in records]
        )
        self.bytes_since_snapshot += len(batch)
        return self._log.append_as_leader(batch, epoch, from_client=False).end_offset

    def append_leader_change(
        self, epoch: int, leader_id: int, voters: tuple[int, ...], granting: tuple[int, ...]
    ) -> None:
        change = LeaderChangeMessage(
            leader_id=leader_id,
            voters=tuple(LeaderChangeMessage.Voter(voter_id=voter) for voter in voters),
            granting_voters=tuple(LeaderChangeMessage.Voter(voter_id=voter) for voter in granting),
        )
        record = NewRecord(
            encode_control_key(ControlType.LEADER_CHANGE),
            encode_control_value(change),
            (),
            self._world.clock.now_ms(),
        )
        self._log.append_as_leader(build_batch([record], control=True), epoch, from_client=False)

    def append_fetched(self, records: Buffer) -> None:
        self.bytes_since_snapshot += len(records)
        self._log.append_as_follower(records)

    async def sync(self) -> None:
        await self._log.flushing.all()

    async def truncate(self, offset: int) -> None:
        """First the segments behind, then within one, so that a crash in between leaves no hole."""
        if offset >= self._log.end_offset:
            return
        with (
            self._log.flushing.held_at(self._log.batch_start(offset)),
            cutting(self._world.disk, self.path),
        ):
            for cut in (self._log.segment_end(offset), offset):
                self._log.truncate_to(cut)
                await self._world.offload.thread(
                    sync_log, self._world.disk, self.path, [self._log.active.file], [self.path]
                )
        await self.sync()

    async def restart_after(self, snapshot: OffsetAndEpoch) -> None:
        with self._log.flushing.held_at(0), cutting(self._world.disk, self.path):
            self._log.restart_at(snapshot.offset)
            await self._world.offload.thread(
                sync_log, self._world.disk, self.path, [self._log.active.file], [self.path]
            )
        self._log.flushing.recovery_point = snapshot.offset
        await self.snapshots.remove([older for older in self.snapshots.all if older != snapshot])

    async def forget_old(self) -> None:
        """What is before the older of the kept snapshots goes: the log's beginning moves there,
        then older snapshots go, then segments."""
        latest = self.snapshots.latest
        if latest is None or latest.offset < self._log.start_offset:
            return
        kept = self.snapshots.all[-KEPT:]
        if len(kept) == KEPT:
            self._log.advance_start(kept[0].offset)
        await self.snapshots.remove(
            [older for older in self.snapshots.all if older.offset < kept[0].offset]
        )
        ends = [segment.base_offset for segment in self._log.segments[1:]]
        for path in self._log.retire(sum(end <= self._log.start_offset for end in ends)):
            await self._world.offload.thread(self._world.disk.remove, path)

    async def close(self) -> None:
        await self.sync()
        self._log.save()

    # Reading

    def read(self, offset: int, below: int | None = None) -> bytes:
        """Whole batches from an offset on; the first one in any case, however large."""
        part = self._log.read(
            offset, self.fetch_bytes, below=self._log.end_offset if below is None else below
        )
        data = b"" if part is None else part.read()
        whole = 0
        for position, header in batches(data):
            whole = position + header.size
        return data[:whole]

    # The state of elections

    def read_state(self, cluster_id: str) -> ElectionState:
        path = f"{self.path}/{QUORUM_STATE}"
        if not self._world.disk.exists(path):
            return ElectionState(self._last_epoch, None)
        try:
            state, _version = decode_quorum_state(self._world.disk.read(path))
        except ProtocolError as error:
            message = (
                f"{path}: {error}. This voter no longer knows its vote: empty its metadata "
                "directory and format it again"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        if state.cluster_id and state.cluster_id != cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"{path} belongs to cluster {state.cluster_id}, not to {cluster_id}",
            )
        if state.leader_epoch < self._last_epoch:
            return ElectionState(self._last_epoch, None)
        return ElectionState(
            max(state.leader_epoch, 0), None if state.voted_id == NOBODY else state.voted_id
        )

    async def save_state(
        self, cluster_id: str, voters: tuple[int, ...], state: ElectionState
    ) -> None:
        data = QuorumStateData(
            cluster_id=cluster_id,
            leader_id=NOBODY if state.leader_id is None else state.leader_id,
            leader_epoch=state.epoch,
            voted_id=NOBODY if state.voted_id is None else state.voted_id,
            current_voters=tuple(QuorumStateData.CurrentVoter(voter_id=voter) for voter in voters),
        )
        with self._directory.failing("saving quorum-state"):
            await self._world.offload.thread(
                self._world.disk.replace,
                f"{self.path}/{QUORUM_STATE}",
                encode_quorum_state(data, 0),
            )


def decoded(data: bytes) -> Iterator[tuple[BatchHeader, list[object]]]:
    """The metadata records of each batch; a control batch has none."""
    for position, header in batches(data):
        if not crc_matches(data, position, header):
            message = (
                "the metadata log is damaged: the checksum of the batch at "
                f"{header.base_offset} does not match"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        values = (
            []
            if header.is_control
            else [record.value or b"" for record in records_of(data, header, position)]
        )
        yield header, [decode_record(value) for value in values]
