"""ElectLeaders: elects the preferred leaders of partitions, or unclean leaders.

Behaviour
  The controller decides on each partition separately, and on a bounded number in each turn of the
  event loop: elections of many partitions are not one transaction. Null elects for all partitions
  that need it.
  ELECTION_NOT_NEEDED if the preferred leader already leads (null omits such partitions),
  PREFERRED_LEADER_NOT_AVAILABLE and ELIGIBLE_LEADERS_NOT_AVAILABLE if no replica can lead.

Version notes
  v1 adds unclean elections and a top-level error.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: ElectLeadersRequest, context: RequestContext
) -> Awaitable[ElectLeadersResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


def decide(
    controller: NodeController, request: ElectLeadersRequest
) -> Awaitable[ElectLeadersResponse]:
    return controller.elect_leaders(request)


def refused(_request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    return ElectLeadersResponse(error_code=error.code)
