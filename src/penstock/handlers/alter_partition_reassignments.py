"""AlterPartitionReassignments: moves partitions to other replicas, or cancels such moves (KIP-455).

Behaviour
  The controller decides on each partition separately. A partition with replicas starts or replaces
  its reassignment; null cancels it. INVALID_REPLICA_ASSIGNMENT for unknown or repeated brokers, and
  for a cancellation that needs an unclean election which the topic forbids.
  NO_REASSIGNMENT_IN_PROGRESS if there is nothing to cancel. A large request is decided in slices,
  in order, so that it does not hold the event loop.

Version notes
  v1 adds allow_replication_factor_change (KIP-860): if it is false, INVALID_REPLICATION_FACTOR for
  another number of replicas.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.partitions.reassignment import (
    alter_partition_reassignments,
    merged,
    slices_of,
)
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController

logger = logging.getLogger(__name__)


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> Awaitable[AlterPartitionReassignmentsResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


async def decide(
    controller: NodeController, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    responses = await controller.decide_in_slices(alter_partition_reassignments, slices_of(request))
    response = merged(responses, allow_factor_change=request.allow_replication_factor_change)
    codes = [partition.error_code for topic in response.responses for partition in topic.partitions]
    logger.info("altered the reassignments of %d out of %d partitions", codes.count(0), len(codes))
    return response


def refused(
    _request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
