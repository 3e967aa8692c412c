"""UnregisterBroker: a broker that will not come back is forgotten.

Behaviour
  The controller fences it first: what it led goes to others, and it leaves every set of in-sync
  replicas.

Version notes
  One version.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.brokers.fencing import unregister_broker
from penstock.errors import KafkaError
from penstock.handlers.asking import ask_controller
from penstock.handlers.context import RequestContext
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
    return controller.decide(lambda image: unregister_broker(image, request, controller.context))


def refused(_request: UnregisterBrokerRequest, error: KafkaError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
