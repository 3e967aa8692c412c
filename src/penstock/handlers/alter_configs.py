"""AlterConfigs: replaces all dynamic configs of topics, brokers and groups. Deprecated in Kafka.

Behaviour
  Each resource succeeds or fails on its own. Configs that a request omits return to their defaults.
  A broker resource with an empty name is the default of all brokers. A broker checks paths in its
  cordoned.log.dirs; the active controller decides on everything else.

Version notes
  v2 is flexible; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.configs.alter import alter_configs, replace_all
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller, refused_resources
from penstock.handlers.cordons import refused_cordons
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController
    from penstock.node.metadata import MetadataView


class Parts(Protocol):
    metadata: MetadataView
    controllers: Controllers


def handle(
    parts: Parts, request: AlterConfigsRequest, context: RequestContext
) -> Awaitable[AlterConfigsResponse]:
    return _alter(parts, request, context)


async def _alter(
    parts: Parts, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    refusals = refused_cordons(parts.metadata.broker_config, request.resources, replace_all)
    others = tuple(
        resource for index, resource in enumerate(request.resources) if index not in refusals
    )
    responses = tuple(
        response
        for index, error in refusals.items()
        for response in refused_resources(
            AlterConfigsResponse.Response, (request.resources[index],), error
        )
    )
    if others or not request.resources:
        forwarded = AlterConfigsRequest(resources=others, validate_only=request.validate_only)
        decided = await ask_controller(parts.controllers, forwarded, context, decide, refused)
        responses = decided.responses + responses
    return AlterConfigsResponse(responses=responses)


def decide(
    controller: NodeController, request: AlterConfigsRequest
) -> Awaitable[AlterConfigsResponse]:
    return controller.alter_configs(alter_configs, request)


def refused(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=refused_resources(AlterConfigsResponse.Response, request.resources, error)
    )
