"""AlterConfigs: replaces all settings of topics, brokers and groups that were set while the cluster
ran. Deprecated.

Behaviour
  Each resource succeeds or fails by itself. What a request does not name goes back to its default.
  A broker without a name stands for all.

Version notes
  v2 is flexible; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.configs.alter import alter_configs
from penstock.errors import KafkaError
from penstock.handlers.asking import ask_controller
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: AlterConfigsRequest, context: RequestContext
) -> Awaitable[AlterConfigsResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


def decide(
    controller: NodeController, request: AlterConfigsRequest
) -> Awaitable[AlterConfigsResponse]:
    return controller.alter_settings(
        lambda image: alter_configs(image, request, controller.context)
    )


def refused(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    responses = (
        AlterConfigsResponse.Response(
            error_code=error.code,
            error_message=error.message,
            resource_type=one.resource_type,
            resource_name=one.resource_name,
        )
        for one in request.resources
    )
    return AlterConfigsResponse(responses=tuple(responses))
