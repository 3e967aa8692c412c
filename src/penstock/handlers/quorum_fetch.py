"""Fetch on a controller's listener: voters and brokers replicate the metadata log,
`__cluster_metadata-0` (KIP-595).

Behaviour
  Only the leader returns records. Other nodes return NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH or
  UNKNOWN_LEADER_EPOCH, and the leader. If the follower's log diverges, the response says where
  (DivergingEpoch); if it ends before the leader's log starts, the response names a snapshot
  (SnapshotId). The response waits for records, for a high watermark that the follower does not
  know, or for max_wait_ms.

Version notes
  v17 adds the replica's directory id: with another one than the voter's, a replica is an observer
  (KIP-853); v18 its high watermark. An
  older follower learns a new high watermark with the next records.

Not implemented
  Fetch sessions, as in Kafka's quorum.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from penstock.node.quorum.quorum import Quorum


class Parts(Protocol):
    quorum: Quorum


def handle(
    parts: Parts, request: FetchRequest, context: RequestContext
) -> FetchResponse | Awaitable[FetchResponse]:
    context.connection.is_follower = True
    return parts.quorum.fetch(request, context)
