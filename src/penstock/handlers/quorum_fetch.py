"""Fetch on a controller's listener: voters and brokers replicate the metadata log,
`__cluster_metadata-0` (KIP-595).

Behaviour
  Only the leader answers with records; others say who leads (NOT_LEADER_OR_FOLLOWER,
  FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH). A log that differs from the leader's is told where
  (DivergingEpoch), one that is too far behind which snapshot to fetch (SnapshotId). Held back until
  there are records, or a high watermark that the follower does not know, or max_wait_ms is over.

Version notes
  v17 has the replica's directory id, which static voters do not use; v18 its high watermark: below,
  it learns of a new one with the next records.

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
    return parts.quorum.fetch(request, context)
