"""CreateTopics: creates topics.

Behaviour
  The controller decides on each topic separately. This node sends the response when its own
  metadata has the topics. -1 stands for num.partitions and default.replication.factor. With
  validate_only the controller creates nothing. A client beyond its quota controller_mutation_rate
  gets THROTTLING_QUOTA_EXCEEDED (KIP-599).

Version notes
  v5 returns the number of partitions, the replication factor and the configs of each topic, v7 its
  id. Up to v5 a client beyond its quota is throttled, and its topics are created.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.topics.create import create_topics
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.node.controller.mutation_quota import under_quota
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController
    from penstock.node.metadata import MetadataView
    from penstock.security.quotas.client_quotas import MutationQuota


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
    response = await ask_controller(
        parts.controllers,
        request,
        context,
        under_quota(decide, context, context.api_key, context.version),
        refused,
    )
    if not request.validate_only:
        await parts.metadata.wait_topics(
            [topic.name for topic in response.topics if not topic.error_code]
        )
    return response


def decide(
    controller: NodeController,
    request: CreateTopicsRequest,
    mutations: MutationQuota | None = None,
) -> Awaitable[CreateTopicsResponse]:
    return controller.decide(create_topics, request, mutations)


def refused(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    topics = (
        CreateTopicsResponse.Topic(
            name=topic.name, error_code=error.code, error_message=error.message
        )
        for topic in request.topics
    )
    return CreateTopicsResponse(topics=tuple(topics))
