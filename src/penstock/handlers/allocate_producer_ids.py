"""AllocateProducerIds: a block of producer ids that nobody else will ever have.

Behaviour
  The broker must be registered in the epoch that it names.

Version notes
  One version.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.producer_ids import allocate_producer_ids
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController

logger = logging.getLogger(__name__)


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: AllocateProducerIdsRequest, _context: RequestContext
) -> Awaitable[AllocateProducerIdsResponse]:
    return _decide(parts.controller, request)


async def _decide(
    controller: NodeController, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    try:
        return await controller.decide(lambda image: allocate_producer_ids(image, request))
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            logger.info(
                "AllocateProducerIds of broker %d is refused: %s", request.broker_id, error.message
            )
        return AllocateProducerIdsResponse(error_code=error.code)
