"""Downloads a metadata snapshot from the leader, piece by piece (KIP-630).

A download that fails continues where it ended, so that a long snapshot arrives over a bad
connection too. The complete file is checked before it becomes a snapshot of this node (rule 20).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import METADATA_TOPIC
from penstock.limits import MAX_SNAPSHOT_BYTES, METADATA_FETCH_BYTES
from penstock.node.quorum.log import MetadataLog
from penstock.node.quorum.peers import Peers
from penstock.node.quorum.snapshot_file import SnapshotDamaged
from penstock.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import FetchSnapshot, SnapshotProgress
from penstock.raft.voters import ReplicaKey
from penstock.world import File

logger = logging.getLogger(__name__)

# The first bytes of a snapshot, with the time at which it was written and a CRC. They differ if the
# leader has written the snapshot again since a download began.
_HEAD_BYTES = 80
# The partial file is of no use after these errors.
_GONE = (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)


@dataclass(slots=True, eq=False)
class _Partial:
    """A download that has begun. Its file has the first `position` of `size` bytes."""

    leader_id: int
    snapshot: OffsetAndEpoch
    part: File
    position: int = 0
    size: int = 0


class _Piece(NamedTuple):
    size: int
    position: int
    data: bytes


class _Superseded(Exception):
    """Another download began."""


class _Refused(ProtocolError):
    def __init__(self, code: int) -> None:
        super().__init__(f"the leader rejected the FetchSnapshot with error code {code}")
        self.code = code


class SnapshotDownloads:
    def __init__(
        self, log: MetadataLog, peers: Peers, replica_key: ReplicaKey, cluster_id: str
    ) -> None:
        # The size of a piece.
        self.piece_bytes = METADATA_FETCH_BYTES
        self._log = log
        self._store = log.snapshots
        self._peers = peers
        self._replica_key = replica_key
        self._cluster_id = cluster_id
        self._partial: _Partial | None = None
        # The effect that is carried out. An earlier one ends when its next piece arrives.
        self._current: FetchSnapshot | None = None

    async def download(
        self, effect: FetchSnapshot, deliver: Callable[[SnapshotProgress], None]
    ) -> None:
        """Download a snapshot, and report each piece to the state machine."""
        snapshot, self._current = effect.snapshot, effect
        progress = SnapshotProgress(effect.leader_id, effect.epoch, snapshot)
        try:
            partial = await self._resume(effect) or await self._begin(effect)
            while partial.position < partial.size:
                await self._add_piece(effect, partial)
                deliver(progress)
            self._partial = None
            await self._finish(partial)
        except _Superseded:
            return
        except (KafkaError, ProtocolError) as error:
            if self._log.is_offline:
                raise
            if self._current is not effect:
                return
            logger.warning(
                "could not fetch the snapshot at offset %d from node %d: %s",
                snapshot.offset,
                effect.leader_id,
                error,
            )
            if isinstance(error, _Refused) and error.code in _GONE:
                await self._discard_partial()
            deliver(replace(progress, failed=True))
        else:
            deliver(replace(progress, done=True))

    async def _begin(self, effect: FetchSnapshot) -> _Partial:
        await self._discard_partial()
        logger.info(
            "fetching the snapshot at offset %d from node %d",
            effect.snapshot.offset,
            effect.leader_id,
        )
        piece = await self._fetch_piece(effect, 0, self.piece_bytes)
        if not 0 < piece.size <= MAX_SNAPSHOT_BYTES:
            raise ProtocolError(f"the leader's snapshot has {piece.size} bytes")
        part = await self._store.begin(effect.snapshot)
        if self._current is not effect:
            await self._store.discard(part)
            raise _Superseded
        partial = _Partial(effect.leader_id, effect.snapshot, part, size=piece.size)
        self._partial = partial
        self._write(partial, piece)
        return partial

    async def _resume(self, effect: FetchSnapshot) -> _Partial | None:
        """Return the partial file of this snapshot, if the leader has not changed it since."""
        partial = self._partial
        if (
            partial is None
            or (partial.leader_id, partial.snapshot) != (effect.leader_id, effect.snapshot)
            or partial.position < _HEAD_BYTES
        ):
            return None
        head = await self._fetch_piece(effect, 0, _HEAD_BYTES)
        own_head = self._store.read_part(partial.part, _HEAD_BYTES)
        if (head.size, head.data) != (partial.size, own_head):
            return None
        logger.info(
            "fetching the snapshot at offset %d from node %d again from position %d on",
            effect.snapshot.offset,
            effect.leader_id,
            partial.position,
        )
        return partial

    async def _add_piece(self, effect: FetchSnapshot, partial: _Partial) -> None:
        piece = await self._fetch_piece(effect, partial.position, self.piece_bytes)
        if piece.size != partial.size:
            raise ProtocolError("the leader's snapshot changed its size")
        self._write(partial, piece)

    def _write(self, partial: _Partial, piece: _Piece) -> None:
        if piece.position != partial.position or not piece.data:
            raise ProtocolError(
                f"the leader sent no bytes of the snapshot at position {partial.position}"
            )
        partial.position += self._store.add(partial.part, piece.data, partial.position)

    async def _finish(self, partial: _Partial) -> None:
        try:
            await self._store.finish(partial.snapshot, partial.part)
        except SnapshotDamaged:
            await self._store.discard(partial.part)
            raise

    async def _discard_partial(self) -> None:
        partial, self._partial = self._partial, None
        if partial is not None:
            await self._store.discard(partial.part)

    async def _fetch_piece(self, effect: FetchSnapshot, position: int, max_bytes: int) -> _Piece:
        kind = FetchSnapshotRequest.Topic.Partition
        partition = kind(
            current_leader_epoch=effect.epoch,
            snapshot_id=kind.SnapshotId(
                end_offset=effect.snapshot.offset, epoch=effect.snapshot.epoch
            ),
            position=position,
            replica_directory_id=self._replica_key.directory_id,
        )
        topic = FetchSnapshotRequest.Topic(name=METADATA_TOPIC, partitions=(partition,))
        request = FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=self._replica_key.id,
            max_bytes=max_bytes,
            topics=(topic,),
        )
        response = await self._peers.fetch(effect.leader_id, request, FetchSnapshotResponse)
        if self._current is not effect:
            raise _Superseded
        piece: Any = (
            response.topics[0].partitions[0]
            if response.topics and response.topics[0].partitions
            else None
        )
        if response.error_code or piece is None or piece.error_code:
            code = response.error_code or (piece.error_code if piece is not None else 0)
            raise _Refused(code)
        return _Piece(piece.size, piece.position, bytes(piece.unaligned_records))
