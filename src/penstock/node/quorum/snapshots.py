"""Metadata snapshots in use: generated when the log has grown, served to replicas that are behind,
downloaded from the leader (KIP-630). `snapshot_store` has the files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import METADATA_TOPIC
from penstock.limits import MAX_SNAPSHOT_BYTES, METADATA_FETCH_BYTES
from penstock.metadata.image import MetadataImage
from penstock.node.quorum.log import MetadataLog
from penstock.node.quorum.metadata_loader import MetadataLoader
from penstock.node.quorum.peers import Peers
from penstock.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import FetchSnapshot, SnapshotProgress
from penstock.world import World

logger = logging.getLogger(__name__)

_Partition = FetchSnapshotResponse.Topic.Partition


class MetadataSnapshots:
    def __init__(
        self,
        world: World,
        log: MetadataLog,
        loader: MetadataLoader,
        peers: Peers,
        node_id: int,
        cluster_id: str,
    ) -> None:
        self._world = world
        self._log = log
        self._store = log.snapshots
        self._loader = loader
        self._peers = peers
        self._node_id = node_id
        self._cluster_id = cluster_id

    # Generating and loading

    async def generate(self) -> None:
        """Write a snapshot of the committed image, and delete the log before the previous one."""
        image = self._loader.image
        snapshot = OffsetAndEpoch(image.offset + 1, self._log.epoch_at(image.offset))
        latest = self._log.latest_snapshot
        if (
            image.offset < 0
            or image.open_transaction is not None
            or (latest is not None and snapshot.offset <= latest.offset)
        ):
            return
        self._log.bytes_since_snapshot = 0
        await self._store.write(image, snapshot, self._world.clock.now_ms())
        logger.info("wrote snapshot %s", self._store.path(snapshot))
        await self._log.delete_before_snapshot()

    async def load_latest(self) -> MetadataImage | None:
        """Return the image of the newest readable snapshot; None if there is no snapshot.

        A damaged snapshot is removed if the log, or the log after an older snapshot, has the same
        records. Otherwise KafkaError is raised.
        """
        for snapshot in reversed(self._store.all):
            try:
                return await self._store.load(snapshot)
            except KafkaError as error:
                older = [other.offset for other in self._store.all if other < snapshot]
                if self._log.start_offset > max(older, default=0):
                    raise
                logger.error(
                    "%s. Removing the snapshot: the log still has its records", error.message
                )
                await self._store.remove([snapshot])
        return None

    async def install(self, snapshot: OffsetAndEpoch) -> None:
        """Load a downloaded snapshot, then truncate the log to it.

        The image comes first: once it is loaded, nothing reads the records that are removed.
        """
        self._loader.load(await self._store.load(snapshot))
        await self._log.truncate_to_snapshot(snapshot)

    # Serving

    def serve(
        self,
        request: FetchSnapshotRequest,
        leader_id: int,
        epoch: int,
        validate_leader_epoch: Callable[[int], ErrorCode],
    ) -> FetchSnapshotResponse:
        """Answer a FetchSnapshot request with the bytes at its position."""
        if request.cluster_id not in (None, self._cluster_id):
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if (
            len(request.topics) != 1
            or request.topics[0].name != METADATA_TOPIC
            or len(request.topics[0].partitions) != 1
        ):
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        requested = request.topics[0].partitions[0]
        snapshot = OffsetAndEpoch(requested.snapshot_id.end_offset, requested.snapshot_id.epoch)
        error, size, data = validate_leader_epoch(requested.current_leader_epoch), 0, b""
        if error is ErrorCode.NONE and snapshot not in self._store.all:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif error is ErrorCode.NONE:
            size = self._store.size(snapshot)
            if not 0 <= requested.position < size:
                error = ErrorCode.POSITION_OUT_OF_RANGE
            else:
                length = max(0, min(request.max_bytes, METADATA_FETCH_BYTES))
                data = self._store.read(snapshot, requested.position, length)
        partition = _Partition(
            error_code=error,
            snapshot_id=_Partition.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
            current_leader=_Partition.CurrentLeader(leader_id=leader_id, leader_epoch=epoch),
            size=size,
            position=requested.position,
            unaligned_records=data,
        )
        return FetchSnapshotResponse(
            topics=(FetchSnapshotResponse.Topic(name=METADATA_TOPIC, partitions=(partition,)),)
        )

    # Downloading

    async def download(
        self, effect: FetchSnapshot, deliver: Callable[[SnapshotProgress], None]
    ) -> None:
        """Download a snapshot part by part, and report each part to the state machine."""
        snapshot = effect.snapshot
        logger.info(
            "fetching the snapshot at offset %d from node %d", snapshot.offset, effect.leader_id
        )
        progress = SnapshotProgress(effect.leader_id, effect.epoch, snapshot)
        part = self._store.begin(snapshot)
        position, size = 0, 1
        try:
            while position < size:
                chunk = await self._fetch_chunk(effect, position)
                size = chunk.size
                if (
                    chunk.position != position
                    or not len(chunk.unaligned_records)
                    or not 0 < size <= MAX_SNAPSHOT_BYTES
                ):
                    raise ProtocolError(
                        f"the leader sent no bytes of the snapshot at position {position}"
                    )
                position += self._store.add(part, bytes(chunk.unaligned_records), position)
                deliver(progress)
            await self._store.finish(snapshot, part)
        except (KafkaError, ProtocolError) as error:
            if self._log.is_offline:
                raise
            logger.info(
                "could not fetch the snapshot at offset %d from node %d: %s",
                snapshot.offset,
                effect.leader_id,
                error,
            )
            deliver(replace(progress, failed=True))
        else:
            deliver(replace(progress, done=True))

    async def _fetch_chunk(self, effect: FetchSnapshot, position: int) -> Any:
        kind = FetchSnapshotRequest.Topic.Partition
        partition = kind(
            current_leader_epoch=effect.epoch,
            snapshot_id=kind.SnapshotId(
                end_offset=effect.snapshot.offset, epoch=effect.snapshot.epoch
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
        response = await self._peers.fetch(effect.leader_id, request, FetchSnapshotResponse)
        chunk = (
            response.topics[0].partitions[0]
            if response.topics and response.topics[0].partitions
            else None
        )
        if response.error_code or chunk is None or chunk.error_code:
            code = response.error_code or (chunk.error_code if chunk is not None else 0)
            raise ProtocolError(f"the leader rejected the FetchSnapshot with error code {code}")
        return chunk
