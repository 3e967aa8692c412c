"""UnregisterBroker: removes the registration of a broker that will not return.

Behaviour
  The controller fences the broker first: its partitions get other leaders, and it leaves the ISR of
  each.

Version notes
  One version.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: UnregisterBrokerRequest, context: RequestContext
) -> Awaitable[UnregisterBrokerResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


def decide(
    controller: NodeController, request: UnregisterBrokerRequest
) -> Awaitable[UnregisterBrokerResponse]:
    return controller.unregister_broker(request)


def refused(_request: UnregisterBrokerRequest, error: KafkaError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
