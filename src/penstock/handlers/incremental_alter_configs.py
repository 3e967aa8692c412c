"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single dynamic configs of
topics, brokers and groups (KIP-339).

Behaviour
  Each resource succeeds or fails on its own. Configs that a request omits keep their values. A
  broker resource with an empty name is the default of all brokers.

Version notes
  v1 is flexible; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.configs.alter import incremental_alter_configs
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller, refused_resources
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
    return controller.alter_configs(incremental_alter_configs, request)


def refused(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    responses = refused_resources(
        IncrementalAlterConfigsResponse.Response, request.resources, error
    )
    return IncrementalAlterConfigsResponse(responses=responses)
