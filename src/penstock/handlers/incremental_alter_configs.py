"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single settings of topics,
brokers and groups.

Behaviour
  Each resource succeeds or fails by itself; what is not named stays. A broker without a name stands
  for all.

Version notes
  v1 is flexible; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.configs.alter import incremental_alter_configs
from penstock.errors import KafkaError
from penstock.handlers.asking import ask_controller
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> Awaitable[IncrementalAlterConfigsResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


def decide(
    controller: NodeController, request: IncrementalAlterConfigsRequest
) -> Awaitable[IncrementalAlterConfigsResponse]:
    return controller.alter_settings(
        lambda image: incremental_alter_configs(image, request, controller.context)
    )


def refused(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    responses = (
        IncrementalAlterConfigsResponse.Response(
            error_code=error.code,
            error_message=error.message,
            resource_type=one.resource_type,
            resource_name=one.resource_name,
        )
        for one in request.resources
    )
    return IncrementalAlterConfigsResponse(responses=tuple(responses))
