"""BeginQuorumEpoch: the leader of a new epoch says so to a voter, which fetches from it from then
on (KIP-595).

Behaviour
  Answered when the epoch is on disk. An earlier epoch is FENCED_LEADER_EPOCH, with the leader of
  the current one.

Version notes
  v1 has directory ids and the leader's endpoints; voters are where controller.quorum.voters says,
  so neither is used.
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
