"""EndQuorumEpoch: a leader that stops says so, so that the next one is elected at once (KIP-595).

Behaviour
  The first of the successors named stands for election at once, the others one after the other
  should it not win.

Version notes
  v1 names successors with directory ids, which static voters do not use.
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
