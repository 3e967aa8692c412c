"""FetchSnapshot: a replica of the metadata log that ends before the leader's log starts fetches a
snapshot, in pieces (KIP-630).

Behaviour
  Only the leader sends data. SNAPSHOT_NOT_FOUND if the snapshot has been deleted, or is damaged on
  the leader's disk: the replica fetches again, and the response names another snapshot.
  POSITION_OUT_OF_RANGE for a position outside of the snapshot.

Version notes
  v1 adds the replica's directory id.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

if TYPE_CHECKING:
    from penstock.node.quorum.quorum import Quorum


class Parts(Protocol):
    quorum: Quorum


def handle(
    parts: Parts, request: FetchSnapshotRequest, _context: RequestContext
) -> Awaitable[FetchSnapshotResponse]:
    return parts.quorum.fetch_snapshot(request)
