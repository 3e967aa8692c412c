"""RemoveRaftVoter: makes a voter of the quorum an observer (KIP-853).

Behaviour
  Every node forwards the request to the leader of the quorum, which writes the voters that are left
  to the log. The response follows the commit. A leader that removes itself then resigns.
  VOTER_NOT_FOUND if no voter has this id and directory id, INVALID_REQUEST for the last voter.
  REQUEST_TIMED_OUT while another change is not committed, before the leader has committed a record
  of its epoch, or if the change is not committed in time. UNSUPPORTED_VERSION with kraft.version 0.

Version notes
  One version.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: RemoveRaftVoterRequest, context: RequestContext
) -> Awaitable[RemoveRaftVoterResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


def decide(
    controller: NodeController, request: RemoveRaftVoterRequest
) -> Awaitable[RemoveRaftVoterResponse]:
    return controller.remove_raft_voter(request)


def refused(_request: RemoveRaftVoterRequest, error: KafkaError) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
