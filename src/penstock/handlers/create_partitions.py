"""CreatePartitions: adds partitions to existing topics.

Behaviour
  The controller decides on each topic separately. With validate_only it creates nothing.

Version notes
  v2 is flexible. v3 brings THROTTLING_QUOTA_EXCEEDED (KIP-599); before, a client beyond its quota
  controller_mutation_rate is throttled, and its partitions are created.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.topics.create_partitions import create_partitions
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.node.controller.mutation_quota import under_quota
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController
    from penstock.security.quotas.client_quotas import MutationQuota


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: CreatePartitionsRequest, context: RequestContext
) -> Awaitable[CreatePartitionsResponse]:
    return ask_controller(
        parts.controllers,
        request,
        context,
        under_quota(decide, context, context.api_key, context.version),
        refused,
    )


def decide(
    controller: NodeController,
    request: CreatePartitionsRequest,
    mutations: MutationQuota | None = None,
) -> Awaitable[CreatePartitionsResponse]:
    return controller.decide(create_partitions, request, mutations)


def refused(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    results = (
        CreatePartitionsResponse.Result(
            name=topic.name, error_code=error.code, error_message=error.message
        )
        for topic in request.topics
    )
    return CreatePartitionsResponse(results=tuple(results))
