"""CreatePartitions: more partitions for topics that there are.

Behaviour
  The controller decides for each topic by itself; the answer leaves when the partitions can be
  used. validate_only changes nothing.

Version notes
  v2 is flexible; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.topics.create_partitions import create_partitions
from penstock.errors import KafkaError
from penstock.handlers.asking import ask_controller
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: CreatePartitionsRequest, context: RequestContext
) -> Awaitable[CreatePartitionsResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


def decide(
    controller: NodeController, request: CreatePartitionsRequest
) -> Awaitable[CreatePartitionsResponse]:
    return controller.decide(lambda image: create_partitions(image, request, controller.context))


def refused(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    results = (
        CreatePartitionsResponse.Result(
            name=one.name, error_code=error.code, error_message=error.message
        )
        for one in request.topics
    )
    return CreatePartitionsResponse(results=tuple(results))
