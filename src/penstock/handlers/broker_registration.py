"""BrokerRegistration: a broker joins the cluster, or rejoins it after a restart.

Behaviour
  The broker gets a new epoch, and is fenced until it has replayed the metadata and opened its logs.
  The controller refuses a broker of another cluster, one whose previous process may still run
  (DUPLICATE_BROKER_REGISTRATION), and one that does not support the finalized features.

Version notes
  v2 adds directory ids, v3 the epoch of the last clean shutdown (KIP-966), v4 features with a
  minimum of 0.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import answer_broker
from penstock.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: BrokerRegistrationRequest, _context: RequestContext
) -> Awaitable[BrokerRegistrationResponse]:
    return answer_broker(request, parts.controller.register(request), BrokerRegistrationResponse)
