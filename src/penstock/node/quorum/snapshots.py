"""Metadata snapshots in use: generated when the log has grown, served to replicas that are behind,
installed (KIP-630). `snapshot_store` has the files, `snapshot_download` fetches them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.errors import ErrorCode
from penstock.ids import METADATA_TOPIC
from penstock.limits import METADATA_FETCH_BYTES
from penstock.metadata.image import MetadataImage
from penstock.node.quorum.log import MetadataLog
from penstock.node.quorum.metadata_loader import MetadataLoader
from penstock.node.quorum.snapshot_file import SnapshotDamaged
from penstock.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from penstock.raft.log import OffsetAndEpoch
from penstock.world import World

logger = logging.getLogger(__name__)

_Partition = FetchSnapshotResponse.Topic.Partition


class MetadataSnapshots:
    """`is_due` is set when a snapshot must be generated whatever the size of the log is."""

    def __init__(
        self, world: World, log: MetadataLog, loader: MetadataLoader, cluster_id: str
    ) -> None:
        self.is_due = False
        # The size of a FetchSnapshot response.
        self.piece_bytes = METADATA_FETCH_BYTES
        self._world = world
        self._log = log
        self._store = log.snapshots
        self._loader = loader
        self._cluster_id = cluster_id

    # Generating and loading

    async def generate(self) -> None:
        """Write a snapshot of the committed image, and delete old ones."""
        image = self._loader.image
        snapshot = OffsetAndEpoch(image.offset + 1, self._log.epoch_at(image.offset))
        latest = self._store.latest
        if (
            image.offset < 0
            or image.open_transaction is not None
            or (latest is not None and snapshot.offset <= latest.offset)
        ):
            return
        self._log.bytes_since_snapshot = 0
        try:
            voters = self._log.voter_sets.before(snapshot.offset)
            await self._store.write(image, snapshot, self._world.clock.now_ms(), voters)
        except SnapshotDamaged as error:
            logger.error("%s. The disk returned other bytes than were written", error.message)
            return
        self.is_due = False
        logger.info("wrote snapshot %s", self._store.path(snapshot))
        await self.delete_old()

    async def delete_old(self) -> None:
        """Delete snapshots and records beyond the retention settings."""
        await self._log.delete_old(self._loader.image.offset + 1)

    async def load_latest(self) -> MetadataImage | None:
        """Return the image of the latest snapshot; None if there is no snapshot."""
        latest = self._store.latest
        return None if latest is None else await self._store.load(latest)

    async def install(self, snapshot: OffsetAndEpoch) -> None:
        """Load a downloaded snapshot, then truncate the log to it.

        The image comes first: once it is loaded, nothing reads the records that are removed. If the
        snapshot is damaged since it was downloaded, the log stays as it is, and the next fetch
        names a snapshot again.
        """
        try:
            image = await self._store.load(snapshot)
            voters = await self._store.voters(snapshot)
        except SnapshotDamaged as error:
            await self._set_aside(snapshot, error)
            return
        await self._loader.load(image)
        await self._log.truncate_to_snapshot(snapshot, voters)

    async def _set_aside(self, snapshot: OffsetAndEpoch, error: SnapshotDamaged) -> None:
        logger.error("%s. It is set aside; check the disk of this node", error.message)
        await self._store.set_aside(snapshot)

    # Serving

    async def serve(
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
        if error is ErrorCode.NONE:
            length = max(0, min(request.max_bytes, self.piece_bytes))
            error, size, data = await self._read(snapshot, requested.position, length)
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

    async def _read(
        self, snapshot: OffsetAndEpoch, position: int, length: int
    ) -> tuple[ErrorCode, int, bytes]:
        """A damaged snapshot is not found. The previous one is offered instead, or the one that is
        generated next."""
        if snapshot not in self._store.all:
            return ErrorCode.SNAPSHOT_NOT_FOUND, 0, b""
        try:
            size, data = await self._store.read(snapshot, position, length)
        except SnapshotDamaged as error:
            await self._set_aside(snapshot, error)
            self.is_due = True
            return ErrorCode.SNAPSHOT_NOT_FOUND, 0, b""
        is_inside = 0 <= position < size
        return ErrorCode.NONE if is_inside else ErrorCode.POSITION_OUT_OF_RANGE, size, data
