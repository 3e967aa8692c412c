"""AlterPartition: a leader proposes in-sync replicas.

Behaviour
  The controller checks leader, partition and broker epochs (invariant 12), and that every replica
  named is alive in the life that is named. The answer has the partition as it is now.

Version notes
  v3 names replicas with their broker epochs (KIP-903).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.partitions.alter import alter_partition
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController

logger = logging.getLogger(__name__)


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: AlterPartitionRequest, _context: RequestContext
) -> Awaitable[AlterPartitionResponse]:
    return _decide(parts.controller, request)


async def _decide(
    controller: NodeController, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    try:
        return await controller.decide(
            lambda image: alter_partition(image, request, controller.context)
        )
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            logger.info(
                "AlterPartition of broker %d is refused: %s", request.broker_id, error.message
            )
        return AlterPartitionResponse(error_code=error.code)
