"""FetchSnapshot: a replica of the metadata log that is too far behind fetches a snapshot, piece by
piece (KIP-630).

Behaviour
  Only the leader answers with data. SNAPSHOT_NOT_FOUND where the snapshot is no longer there: the
  replica fetches again, and is told of a later one. POSITION_OUT_OF_RANGE for a position that it
  does not have.

Version notes
  v1 has directory ids, which static voters do not use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

if TYPE_CHECKING:
    from penstock.node.quorum.quorum import Quorum


class Parts(Protocol):
    quorum: Quorum


def handle(
    parts: Parts, request: FetchSnapshotRequest, _context: RequestContext
) -> FetchSnapshotResponse:
    return parts.quorum.fetch_snapshot(request)
