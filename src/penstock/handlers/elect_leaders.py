"""ElectLeaders: the preferred leader of partitions leads again, or, where asked for, an unclean
one.

Behaviour
  The controller decides for each partition by itself; null elects for all that need it.
  ELECTION_NOT_NEEDED where the preferred leader leads already (with null such partitions are left
  out), PREFERRED_LEADER_NOT_AVAILABLE and ELIGIBLE_LEADERS_NOT_AVAILABLE where none can.

Version notes
  v1 brings unclean elections and an error for the whole.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.partitions.elections import elect_leaders
from penstock.errors import KafkaError
from penstock.handlers.asking import ask_controller
from penstock.handlers.context import RequestContext
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
    return controller.decide(lambda image: elect_leaders(image, request, controller.context))


def refused(_request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    return ElectLeadersResponse(error_code=error.code)
