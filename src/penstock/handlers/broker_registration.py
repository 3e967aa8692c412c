"""BrokerRegistration: a broker comes to the cluster, or comes back.

Behaviour
  It gets a new epoch, and is fenced until it has read the metadata and opened its logs. Refused:
  another cluster's, one whose earlier life may still be there (DUPLICATE_BROKER_REGISTRATION), one
  that does not know the finalized features.

Version notes
  v2 brings directory ids, v3 the epoch of the last clean shutdown (KIP-966), v4 features with a
  minimum of 0.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController

logger = logging.getLogger(__name__)


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: BrokerRegistrationRequest, _context: RequestContext
) -> Awaitable[BrokerRegistrationResponse]:
    return _decide(parts.controller, request)


async def _decide(
    controller: NodeController, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    try:
        return await controller.register(request)
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            logger.info(
                "BrokerRegistration of broker %d is refused: %s", request.broker_id, error.message
            )
        return BrokerRegistrationResponse(error_code=error.code)
