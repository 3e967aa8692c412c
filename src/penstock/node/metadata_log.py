"""The cluster's metadata log, `__cluster_metadata-0`, with a quorum of one: this node.

A record counts once it is synced. Epochs rise with every start and are in `quorum-state` on disk before anything is written in them
(invariant 16). What decides over the log keeps two images: it decides on the pending one, and shows the committed one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.files import OpenFiles
from penstock.log.log import Log
from penstock.log.open import Found, create_log, open_log
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.protocol.internal.control_records import ControlType, LeaderChangeMessage, encode_control_key, encode_control_value
from penstock.protocol.internal.metadata_records import decode_record, encode_record
from penstock.protocol.internal.quorum_state import QuorumStateData, decode_quorum_state, encode_quorum_state
from penstock.records.batch import BatchHeader, batches
from penstock.records.build import NewRecord, build_batch
from penstock.records.record import records_of
from penstock.world import World

PARTITION = TopicPartition(METADATA_TOPIC, 0)
QUORUM_STATE = "quorum-state"
# Kafka's own bound on a batch of the metadata log is 8 MB; a read of this size takes a whole one.
_READ_BYTES = 8 * 1024 * 1024

Applied = Callable[[MetadataImage, MetadataDelta], None]


class MetadataLog:
    """Open it, `lead`, and then `append`. `on_applied` is called with every committed change, in order."""

    def __init__(self, world: World, directory: LogDirectory, node_id: int, cluster_id: str, on_applied: Applied) -> None:
        self.image = MetadataImage.empty()
        self.pending = self.image
        self.epoch = 0
        self._world = world
        self._directory = directory
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._on_applied = on_applied
        self._uncommitted: deque[tuple[int, tuple[object, ...]]] = deque()

    async def open(self, config: LogConfig) -> None:
        """Reads what was decided before this start."""
        files = OpenFiles(self._world.disk)
        path = f"{self._directory.path}/{PARTITION}"
        # Never cut as clean: the quorum's log is read through at every start, and what is whole of it was decided.
        if self._world.disk.exists(path):
            self._log: Log = await open_log(PARTITION, self._directory, files, self._world, config, Found(clean=False))
        else:
            self._log = create_log(PARTITION, METADATA_TOPIC_ID, self._directory, files, self._world, config)
        await self._log.flushing.all()
        for header, records in self._batches():
            if not header.is_control:
                self.image, _delta = self.image.replay(records, header.last_offset)
        self.pending = self.image

    def _batches(self) -> Iterator[tuple[BatchHeader, list[object]]]:
        offset = self._log.start_offset
        while (part := self._log.read(offset, _READ_BYTES, below=self._log.end_offset)) is not None:
            data = part.read()
            for position, header in batches(data):
                values = [] if header.is_control else [record.value or b"" for record in records_of(data, header, position)]
                yield header, [decode_record(value) for value in values]
                offset = header.next_offset

    async def lead(self) -> None:
        """Begins a new epoch, of which this node is the leader by its own vote."""
        path = f"{self._directory.path}/{PARTITION}/{QUORUM_STATE}"
        disk = self._world.disk
        saved = decode_quorum_state(disk.read(path))[0].leader_epoch if disk.exists(path) else 0
        self.epoch = max(saved, self._log.epochs.latest, 0) + 1
        voter = QuorumStateData.CurrentVoter(voter_id=self._node_id)
        state = QuorumStateData(
            cluster_id=self._cluster_id, leader_id=self._node_id, leader_epoch=self.epoch, voted_id=self._node_id, current_voters=(voter,)
        )
        await self._world.offload.thread(disk.replace, path, encode_quorum_state(state, 0))
        voters = (LeaderChangeMessage.Voter(voter_id=self._node_id),)
        change = LeaderChangeMessage(leader_id=self._node_id, voters=voters, granting_voters=voters)
        record = NewRecord(encode_control_key(ControlType.LEADER_CHANGE), encode_control_value(change), (), self._world.clock.now_ms())
        appended = self._log.append_as_leader(build_batch([record], control=True), self.epoch, from_client=False)
        await self._log.flushing.to(appended.end_offset)

    async def append(self, records: tuple[object, ...]) -> None:
        """Returns when the records are committed and applied. What was decided before them is so too."""
        now_ms = self._world.clock.now_ms()
        batch = build_batch([NewRecord(None, encode_record(record), (), now_ms) for record in records])
        end_offset = self._log.append_as_leader(batch, self.epoch, from_client=False).end_offset
        self.pending, _delta = self.pending.replay(records, end_offset - 1)
        self._uncommitted.append((end_offset, records))
        try:
            await self._log.flushing.to(end_offset)
        except KafkaError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata log cannot be written any more: {error.message}") from error
        self._apply_committed()

    def _apply_committed(self) -> None:
        while self._uncommitted and self._uncommitted[0][0] <= self._log.flushing.recovery_point:
            end_offset, records = self._uncommitted.popleft()
            self.image, delta = self.image.replay(records, end_offset - 1)
            self._on_applied(self.image, delta)

    async def close(self) -> None:
        await self._log.flushing.all()
        self._log.save()


def metadata_log_config(segment_bytes: int) -> LogConfig:
    return replace(LogConfig(), segment_bytes=segment_bytes, max_message_bytes=_READ_BYTES, retention_ms=-1)
