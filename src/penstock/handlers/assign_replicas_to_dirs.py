"""AssignReplicasToDirs: a broker tells in which of its directories its replicas lie (KIP-858).

Behaviour
  Where a directory is one that the broker calls offline, its replicas are taken out of service.

Version notes
  One version.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.brokers.directories import assign_replicas_to_dirs
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController

logger = logging.getLogger(__name__)


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: AssignReplicasToDirsRequest, _context: RequestContext
) -> Awaitable[AssignReplicasToDirsResponse]:
    return _decide(parts.controller, request)


async def _decide(
    controller: NodeController, request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse:
    try:
        return await controller.decide(
            lambda image: assign_replicas_to_dirs(image, request, controller.context)
        )
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            logger.info(
                "AssignReplicasToDirs of broker %d is refused: %s", request.broker_id, error.message
            )
        return AssignReplicasToDirsResponse(error_code=error.code)
