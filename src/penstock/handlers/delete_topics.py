"""DeleteTopics: topics go, by name or by id.

Behaviour
  The controller decides for each topic by itself. Once answered, the topics are gone from the
  metadata; their files follow. delete.topic.enable=false refuses all of it.

Version notes
  Names up to v5, names or ids from v6 on. v3 brings TOPIC_DELETION_DISABLED (before,
  INVALID_REQUEST), v5 error messages.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.config.node_settings import DELETE_TOPIC_ENABLE
from penstock.controller.topics.delete import delete_topics
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.asking import ask_controller
from penstock.handlers.context import RequestContext
from penstock.ids import NO_UUID
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController

_DISABLED_SINCE = 3


class Parts(Protocol):
    config: NodeConfig
    controllers: Controllers


def handle(
    parts: Parts, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse | Awaitable[DeleteTopicsResponse]:
    if not parts.config[DELETE_TOPIC_ENABLE]:
        code = (
            ErrorCode.TOPIC_DELETION_DISABLED
            if context.version >= _DISABLED_SINCE
            else ErrorCode.INVALID_REQUEST
        )
        return refused(request, KafkaError(code, "Topic deletion is disabled."))
    return ask_controller(parts.controllers, request, context, decide, refused)


def decide(
    controller: NodeController, request: DeleteTopicsRequest
) -> Awaitable[DeleteTopicsResponse]:
    return controller.decide(lambda image: delete_topics(image, request, controller.context))


def refused(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    named: list[tuple[str | None, UUID]] = [(name, NO_UUID) for name in request.topic_names] or [
        (one.name, one.topic_id) for one in request.topics
    ]
    responses = (
        DeleteTopicsResponse.Response(
            name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
        )
        for name, topic_id in named
    )
    return DeleteTopicsResponse(responses=tuple(responses))
