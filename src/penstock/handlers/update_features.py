"""UpdateFeatures: finalized levels of features rise or fall.

Behaviour
  The controller checks every broker's and controller's range. validate_only decides and changes
  nothing.

Version notes
  v1 brings upgrade types and validate_only, v2 drops the results of single features: all or none.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.features.update import update_features
from penstock.errors import KafkaError
from penstock.handlers.asking import ask_controller
from penstock.handlers.context import RequestContext
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
    return controller.decide(lambda image: update_features(image, request, controller.context))


def refused(_request: UpdateFeaturesRequest, error: KafkaError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
