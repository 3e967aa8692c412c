"""UpdateFeatures: raises or lowers finalized feature levels.

Behaviour
  The controller checks the levels that each broker and controller supports. With validate_only it
  changes nothing. kraft.version is no record of the metadata: the leader of the quorum writes it to
  the log, with the voters (KIP-853).

Version notes
  v1 adds upgrade types and validate_only. v2 drops the results of single features: all change or
  none does.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: UpdateFeaturesRequest, context: RequestContext
) -> Awaitable[UpdateFeaturesResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


def decide(
    controller: NodeController, request: UpdateFeaturesRequest
) -> Awaitable[UpdateFeaturesResponse]:
    return controller.update_features(request)


def refused(_request: UpdateFeaturesRequest, error: KafkaError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
