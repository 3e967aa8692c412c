"""AllocateProducerIds: allocates a block of producer ids to a broker. Blocks never overlap.

Behaviour
  The broker must be registered with the epoch that it gives.

Version notes
  One version.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import answer_broker
from penstock.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: AllocateProducerIdsRequest, _context: RequestContext
) -> Awaitable[AllocateProducerIdsResponse]:
    return answer_broker(
        request, parts.controller.allocate_producer_ids(request), AllocateProducerIdsResponse
    )
