"""EndQuorumEpoch: a leader that stops announces it, so that the voters elect the next leader
without waiting for a timeout (KIP-595).

Behaviour
  The first of the preferred successors starts an election immediately. Each of the others starts
  one later, if none before it has won.

Version notes
  v1 gives successors with directory ids, which static voters do not use.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.protocol.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)

if TYPE_CHECKING:
    from penstock.node.quorum.quorum import Quorum


class Parts(Protocol):
    quorum: Quorum


def handle(
    parts: Parts, request: EndQuorumEpochRequest, _context: RequestContext
) -> EndQuorumEpochResponse | Awaitable[EndQuorumEpochResponse]:
    return parts.quorum.end_quorum_epoch(request)
