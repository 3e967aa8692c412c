"""BeginQuorumEpoch: the leader of a new quorum epoch announces itself to a voter, which then
fetches from it (KIP-595).

Behaviour
  The response is sent when the epoch is on disk. An earlier epoch is FENCED_LEADER_EPOCH, with the
  leader of the current epoch. A request to the voter with another directory id is
  INVALID_VOTER_KEY.

Version notes
  v1 adds directory ids, which static voters do not have, and the leader's endpoints.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)

if TYPE_CHECKING:
    from penstock.node.quorum.quorum import Quorum


class Parts(Protocol):
    quorum: Quorum


def handle(
    parts: Parts, request: BeginQuorumEpochRequest, _context: RequestContext
) -> BeginQuorumEpochResponse | Awaitable[BeginQuorumEpochResponse]:
    return parts.quorum.begin_quorum_epoch(request)
