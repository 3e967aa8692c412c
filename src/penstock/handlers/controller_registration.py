"""ControllerRegistration: a controller registers its listeners and features with the active one
(KIP-919).

Behaviour
  The active controller writes a RegisterControllerRecord; NOT_CONTROLLER on any other. A feature
  level is raised only if every registered controller supports it. UNSUPPORTED_VERSION if the
  controller does not support the cluster's levels.

Version notes
  One version.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.controllers import register_controller
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: ControllerRegistrationRequest, _context: RequestContext
) -> Awaitable[ControllerRegistrationResponse]:
    return _register(parts.controller, request)


async def _register(
    controller: NodeController, request: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    try:
        return await controller.decide(register_controller, request)
    except KafkaError as error:
        return ControllerRegistrationResponse(error_code=error.code, error_message=error.message)
