"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single dynamic configs of
topics, brokers and groups (KIP-339), and the levels of this node's loggers (KIP-412).

Behaviour
  Each resource succeeds or fails on its own. One that occurs twice is INVALID_REQUEST. Configs that
  a request omits keep their values. A broker resource with an empty name is the default of all
  brokers. This node changes its loggers itself, and checks paths in its cordoned.log.dirs if it is
  a broker; the active controller decides on everything else.

Version notes
  v1 is flexible; nothing else changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.configs.alter import apply_operations, incremental_alter_configs
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import loggers
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller, refused_resources
from penstock.handlers.cordons import refused_cordons
from penstock.handlers.loggers import BROKER_LOGGER
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController
    from penstock.node.metadata import MetadataView


Resource = IncrementalAlterConfigsRequest.Resource
Response = IncrementalAlterConfigsResponse.Response

_REPEATED = KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
_UNANSWERED = KafkaError(
    ErrorCode.UNKNOWN_SERVER_ERROR, "the active controller did not answer for this resource"
)


class Parts(Protocol):
    node_id: int
    metadata: MetadataView
    controllers: Controllers


def handle(
    parts: Parts, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> Awaitable[IncrementalAlterConfigsResponse]:
    return _alter(parts, request, context)


async def _alter(
    parts: Parts, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Return the responses in the order of the resources, as Kafka does."""
    counts = Counter(map(_key, request.resources))
    responses = [
        _response(resource, _REPEATED) if counts[_key(resource)] > 1 else None
        for resource in request.resources
    ]
    cordons = refused_cordons(parts.metadata.broker_config, request.resources, apply_operations)
    for index, resource in enumerate(request.resources):
        if responses[index] is None and resource.resource_type == BROKER_LOGGER:
            refusal = _alter_loggers(parts.node_id, resource, validate_only=request.validate_only)
            responses[index] = _response(resource, refusal)
        elif index in cordons:
            responses[index] = _response(resource, cordons[index])
    others = tuple(
        resource
        for resource, response in zip(request.resources, responses, strict=True)
        if response is None
    )
    decided: dict[tuple[int, str], Response] = {}
    if others or not request.resources:
        forwarded = IncrementalAlterConfigsRequest(
            resources=others, validate_only=request.validate_only
        )
        response = await ask_controller(parts.controllers, forwarded, context, decide, refused)
        decided = {_key(answered): answered for answered in response.responses}
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            response or decided.get(_key(resource)) or _response(resource, _UNANSWERED)
            for resource, response in zip(request.resources, responses, strict=True)
        )
    )


def _key(resource: Resource | Response) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _alter_loggers(node_id: int, resource: Resource, *, validate_only: bool) -> KafkaError | None:
    """Return why the levels are not altered; None if they are."""
    try:
        loggers.check_configs(resource.configs)
        loggers.check_node(node_id, resource.resource_name)
        loggers.alter(resource.configs, validate_only=validate_only)
    except KafkaError as error:
        return error
    return None


def _response(resource: Resource, refusal: KafkaError | None) -> Response:
    return Response(
        error_code=refusal.code if refusal else ErrorCode.NONE,
        error_message=refusal.message if refusal else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


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
