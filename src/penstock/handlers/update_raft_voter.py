"""UpdateRaftVoter: a voter announces its endpoints and the levels of kraft.version that it supports
to the leader of the quorum (KIP-853).

Behaviour
  The leader writes them to the log, if they differ from those that it has, and responds at once.
  With kraft.version 0 it keeps them in memory: an upgrade needs them. VOTER_NOT_FOUND for a node
  that is no voter. REQUEST_TIMED_OUT while a change of the voters is not committed; the voter asks
  again.

Version notes
  One version.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.protocol.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

if TYPE_CHECKING:
    from penstock.node.quorum.quorum import Quorum


class Parts(Protocol):
    quorum: Quorum


def handle(
    parts: Parts, request: UpdateRaftVoterRequest, _context: RequestContext
) -> Awaitable[UpdateRaftVoterResponse]:
    return parts.quorum.update_raft_voter(request)
