"""Vote: a candidate requests this voter's vote, or asks in a pre-vote if it would get it (KIP-595,
KIP-996).

Behaviour
  The response is sent when the vote is on disk. An earlier epoch is FENCED_LEADER_EPOCH, with the
  leader of the current epoch; a candidate that is no voter is INCONSISTENT_VOTER_SET; another
  cluster id is INCONSISTENT_CLUSTER_ID. A request to the voter with another directory id is
  INVALID_VOTER_KEY: a voter whose directory was emptied is a new voter (KIP-853). With
  kraft.version 1 the candidate need not be a voter in this node's log, which may lack the latest
  voters.

Version notes
  v1 adds directory ids, which static voters do not have; v2 adds the pre-vote.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.protocol.messages.vote import VoteRequest, VoteResponse

if TYPE_CHECKING:
    from penstock.node.quorum.quorum import Quorum


class Parts(Protocol):
    quorum: Quorum


def handle(
    parts: Parts, request: VoteRequest, _context: RequestContext
) -> VoteResponse | Awaitable[VoteResponse]:
    return parts.quorum.vote(request)
