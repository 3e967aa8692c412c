"""CreateTopics: new topics.

Behaviour
  The controller decides for each topic by itself; the answer leaves when the answering node knows
  the topics. -1 takes num.partitions and default.replication.factor. validate_only decides and
  creates nothing.

Version notes
  v5 brings the number of partitions, the replication factor and the settings of what was created,
  v7 its id.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.topics.create import create_topics
from penstock.errors import KafkaError
from penstock.handlers.asking import ask_controller
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController
    from penstock.node.metadata import MetadataView


class Parts(Protocol):
    metadata: MetadataView
    controllers: Controllers


def handle(
    parts: Parts, request: CreateTopicsRequest, context: RequestContext
) -> Awaitable[CreateTopicsResponse]:
    return _create(parts, request, context)


async def _create(
    parts: Parts, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    response = await ask_controller(parts.controllers, request, context, decide, refused)
    if not request.validate_only:
        await parts.metadata.wait_topics(
            [topic.name for topic in response.topics if not topic.error_code]
        )
    return response


def decide(
    controller: NodeController, request: CreateTopicsRequest
) -> Awaitable[CreateTopicsResponse]:
    return controller.decide(lambda image: create_topics(image, request, controller.context))


def refused(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    topics = (
        CreateTopicsResponse.Topic(
            name=one.name, error_code=error.code, error_message=error.message
        )
        for one in request.topics
    )
    return CreateTopicsResponse(topics=tuple(topics))
