"""AddRaftVoter: makes a controller that replicates the metadata log a voter (KIP-853).

Behaviour
  Every node forwards the request to the leader of the quorum. The leader asks the controller for
  the levels of kraft.version that it supports, checks that it has caught up, and writes the voters
  to the log. The response follows the commit. DUPLICATE_VOTER if a voter has this id.
  REQUEST_TIMED_OUT while another change is not committed, before the leader has committed a record
  of its epoch, if the controller lags or does not answer, or if the change is not committed in
  time. UNSUPPORTED_VERSION with kraft.version 0.

Version notes
  v1 adds ack_when_committed: if it is false, the response does not wait for the commit.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: AddRaftVoterRequest, context: RequestContext
) -> Awaitable[AddRaftVoterResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


def decide(
    controller: NodeController, request: AddRaftVoterRequest
) -> Awaitable[AddRaftVoterResponse]:
    return controller.add_raft_voter(request)


def refused(_request: AddRaftVoterRequest, error: KafkaError) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(error_code=error.code, error_message=error.message)
