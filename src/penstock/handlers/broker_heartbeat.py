"""BrokerHeartbeat: keeps a broker's session and reports the metadata offset that it has replayed.

Behaviour
  A broker that has replayed its own registration is unfenced. A broker in controlled shutdown may
  stop (should_shut_down) once no partition depends on it. When the connection of the heartbeats
  closes, the controller probes the broker without waiting for its session to expire.

Version notes
  v1 reports offline log directories, v2 cordoned ones (KIP-1066).
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import answer_broker
from penstock.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: BrokerHeartbeatRequest, context: RequestContext
) -> Awaitable[BrokerHeartbeatResponse]:
    context.connection.on_lost(
        ("heartbeats", request.broker_id),
        partial(parts.controller.connection_lost, request.broker_id, request.broker_epoch),
    )
    return answer_broker(request, parts.controller.heartbeat(request), BrokerHeartbeatResponse)
