"""Snapshots on their way: made when enough has changed, given to replicas that lag, fetched by this
one (KIP-630).

Owns when and from whom; the files are `snapshots`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import METADATA_TOPIC
from penstock.limits import MAX_SNAPSHOT_BYTES, METADATA_FETCH_BYTES
from penstock.metadata.image import MetadataImage
from penstock.node.quorum.images import Images
from penstock.node.quorum.log import QuorumLog
from penstock.node.quorum.peers import Peers
from penstock.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import FetchSnapshot, SnapshotProgress
from penstock.world import World

logger = logging.getLogger(__name__)

_Partition = FetchSnapshotResponse.Topic.Partition


class QuorumSnapshots:
    def __init__(
        self,
        world: World,
        log: QuorumLog,
        images: Images,
        peers: Peers,
        node_id: int,
        cluster_id: str,
    ) -> None:
        self._world = world
        self._log = log
        self._images = images
        self._peers = peers
        self._node_id = node_id
        self._cluster_id = cluster_id

    # Making

    async def make(self) -> None:
        """Of everything that is committed now. The log before the last but one goes."""
        image = self._images.image
        snapshot = OffsetAndEpoch(image.offset + 1, self._log.epoch_at(image.offset))
        latest = self._log.latest_snapshot
        if (
            image.offset < 0
            or image.open_transaction is not None
            or (latest is not None and snapshot.offset <= latest.offset)
        ):
            return
        self._log.bytes_since_snapshot = 0
        await self._log.snapshots.write(image, snapshot, self._world.clock.now_ms())
        logger.info("wrote the snapshot %s", self._log.snapshots.path(snapshot))
        await self._log.forget_old()

    async def newest(self) -> MetadataImage | None:
        """The newest that can be read. A damaged one does no harm where the log, or the log after
        an older one, tells the same."""
        for snapshot in reversed(self._log.snapshots.all):
            try:
                return await self._log.snapshots.load(snapshot)
            except KafkaError as error:
                older = [one.offset for one in self._log.snapshots.all if one < snapshot]
                if self._log.start_offset > max(older, default=0):
                    raise
                logger.error(
                    "%s It is removed, since the log still has what it told of", error.message
                )
                await self._log.snapshots.remove([snapshot])
        return None

    async def install(self, snapshot: OffsetAndEpoch) -> None:
        """The image first: from then on nothing is applied from the log that is about to go."""
        self._images.load(await self._log.snapshots.load(snapshot))
        await self._log.restart_after(snapshot)

    # Giving

    def give(
        self,
        request: FetchSnapshotRequest,
        leader_id: int,
        epoch: int,
        error_for: Callable[[int], ErrorCode],
    ) -> FetchSnapshotResponse:
        if request.cluster_id not in (None, self._cluster_id):
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if (
            len(request.topics) != 1
            or request.topics[0].name != METADATA_TOPIC
            or len(request.topics[0].partitions) != 1
        ):
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        wanted = request.topics[0].partitions[0]
        snapshot_id = _Partition.SnapshotId(
            end_offset=wanted.snapshot_id.end_offset, epoch=wanted.snapshot_id.epoch
        )
        leader = _Partition.CurrentLeader(leader_id=leader_id, leader_epoch=epoch)
        snapshot = OffsetAndEpoch(snapshot_id.end_offset, snapshot_id.epoch)
        error, size, data = error_for(wanted.current_leader_epoch), 0, b""
        if error is ErrorCode.NONE and snapshot not in self._log.snapshots.all:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif error is ErrorCode.NONE:
            size = self._log.snapshots.size(snapshot)
            if not 0 <= wanted.position < size:
                error = ErrorCode.POSITION_OUT_OF_RANGE
            else:
                length = max(0, min(request.max_bytes, METADATA_FETCH_BYTES))
                data = self._log.snapshots.read(snapshot, wanted.position, length)
        partition = _Partition(
            error_code=error,
            snapshot_id=snapshot_id,
            current_leader=leader,
            size=size,
            position=wanted.position,
            unaligned_records=data,
        )
        return FetchSnapshotResponse(
            topics=(FetchSnapshotResponse.Topic(name=METADATA_TOPIC, partitions=(partition,)),)
        )

    # Fetching

    async def fetch(
        self, wanted: FetchSnapshot, lane: str, tell: Callable[[SnapshotProgress], None]
    ) -> None:
        """Piece by piece into a file, which gets its name when it is whole."""
        logger.info(
            "fetching the snapshot at offset %d from node %d",
            wanted.snapshot.offset,
            wanted.leader_id,
        )
        part = self._log.snapshots.begin(wanted.snapshot)
        position, size = 0, 1
        try:
            while position < size:
                piece = await self._piece(wanted, position, lane)
                size = piece.size
                if (
                    piece.position != position
                    or not len(piece.unaligned_records)
                    or not 0 < size <= MAX_SNAPSHOT_BYTES
                ):
                    raise ProtocolError(
                        f"the leader sent no piece of the snapshot at position {position}"
                    )
                position += self._log.snapshots.add(part, bytes(piece.unaligned_records), position)
                tell(SnapshotProgress(wanted.leader_id, wanted.epoch, wanted.snapshot))
            await self._log.snapshots.finish(wanted.snapshot, part)
        except (KafkaError, ProtocolError) as error:
            if self._log.is_offline:
                raise
            logger.info(
                "the snapshot at offset %d was not fetched: %s", wanted.snapshot.offset, error
            )
            tell(SnapshotProgress(wanted.leader_id, wanted.epoch, wanted.snapshot, failed=True))
        else:
            tell(SnapshotProgress(wanted.leader_id, wanted.epoch, wanted.snapshot, done=True))

    async def _piece(self, wanted: FetchSnapshot, position: int, lane: str) -> Any:
        kind = FetchSnapshotRequest.Topic.Partition
        partition = kind(
            current_leader_epoch=wanted.epoch,
            snapshot_id=kind.SnapshotId(
                end_offset=wanted.snapshot.offset, epoch=wanted.snapshot.epoch
            ),
            position=position,
        )
        topic = FetchSnapshotRequest.Topic(name=METADATA_TOPIC, partitions=(partition,))
        request = FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=self._node_id,
            max_bytes=METADATA_FETCH_BYTES,
            topics=(topic,),
        )
        response = await self._peers.call(wanted.leader_id, lane, request, FetchSnapshotResponse)
        found = (
            response.topics[0].partitions[0]
            if response.topics and response.topics[0].partitions
            else None
        )
        if response.error_code or found is None or found.error_code:
            code = response.error_code or (found.error_code if found is not None else 0)
            raise ProtocolError(f"the leader refused the snapshot with error code {code}")
        return found
