"""ListPartitionReassignments: lists the partitions that are being moved (KIP-455).

Behaviour
  The active controller lists the partitions that have replicas to add or to remove, among those
  that the request names, or among all if its topics are null. Topics and partitions that do not
  exist, or are not moving, are omitted. The list has every change that was acknowledged before the
  request.

Version notes
  One version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.partitions.reassignment import listed_response, listed_slices
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> Awaitable[ListPartitionReassignmentsResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


async def decide(
    controller: NodeController, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    # The image is immutable: what other requests change meanwhile does not show.
    image = await controller.current_image()
    topics = []
    for listed in listed_slices(image, request):
        if listed is None:
            await asyncio.sleep(0)
        else:
            topics.append(listed)
    return listed_response(topics)


def refused(
    _request: ListPartitionReassignmentsRequest, error: KafkaError
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
