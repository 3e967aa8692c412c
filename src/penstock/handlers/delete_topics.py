"""DeleteTopics: deletes topics by name or by id.

Behaviour
  The controller decides on each topic separately. The response is sent when the topics are no
  longer in the metadata; the brokers delete their files later. delete.topic.enable=false refuses
  every request.

Version notes
  Up to v5 topics are given by name, from v6 on by name or by id. v3 adds TOPIC_DELETION_DISABLED
  (before: INVALID_REQUEST), v5 error messages and THROTTLING_QUOTA_EXCEEDED (KIP-599); before, a
  client beyond its quota controller_mutation_rate is throttled, and its topics are deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.config.node_settings import DELETE_TOPIC_ENABLE
from penstock.controller.topics.delete import delete_topics
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.ids import NO_UUID
from penstock.node.controller.mutation_quota import under_quota
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController
    from penstock.security.quotas.client_quotas import MutationQuota

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
    return ask_controller(
        parts.controllers,
        request,
        context,
        under_quota(decide, context, context.api_key, context.version),
        refused,
    )


def decide(
    controller: NodeController,
    request: DeleteTopicsRequest,
    mutations: MutationQuota | None = None,
) -> Awaitable[DeleteTopicsResponse]:
    return controller.decide(delete_topics, request, mutations)


def refused(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    topics: list[tuple[str | None, UUID]] = [(name, NO_UUID) for name in request.topic_names] or [
        (topic.name, topic.topic_id) for topic in request.topics
    ]
    responses = (
        DeleteTopicsResponse.Response(
            name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
        )
        for name, topic_id in topics
    )
    return DeleteTopicsResponse(responses=tuple(responses))
