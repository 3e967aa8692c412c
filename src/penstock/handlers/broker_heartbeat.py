"""BrokerHeartbeat: a broker lives, and says how far it has read the metadata.

Behaviour
  A broker that has read its own registration is unfenced; one that wants to stop is told when
  nothing depends on it any more. When the connection of its heartbeats is lost, the controller
  looks after it at once and does not wait for the session timeout.

Version notes
  v1 brings directories that failed, v2 those that are cordoned, which nothing here uses yet.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController

logger = logging.getLogger(__name__)


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: BrokerHeartbeatRequest, context: RequestContext
) -> Awaitable[BrokerHeartbeatResponse]:
    controller = parts.controller
    context.visit.on_lost(
        ("heartbeats", request.broker_id),
        partial(controller.connection_lost, request.broker_id, request.broker_epoch),
    )
    return _beat(controller, request)


async def _beat(
    controller: NodeController, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    try:
        return await controller.heartbeat(request)
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            logger.info("a heartbeat of broker %d is refused: %s", request.broker_id, error.message)
        return BrokerHeartbeatResponse(error_code=error.code)
