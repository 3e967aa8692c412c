"""AlterConfigs: replaces all dynamic configs of topics, brokers and groups. Deprecated in Kafka.

Behaviour
  Each resource succeeds or fails on its own. Configs that a request omits return to their defaults.
  A broker resource with an empty name is the default of all brokers.

Version notes
  v2 is flexible; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.configs.alter import alter_configs
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller, refused_resources
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
    return controller.alter_configs(alter_configs, request)


def refused(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=refused_resources(AlterConfigsResponse.Response, request.resources, error)
    )
