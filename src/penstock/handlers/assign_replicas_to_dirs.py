"""AssignReplicasToDirs: a broker reports the log directories of its replicas (KIP-858).

Behaviour
  A replica in a directory that the broker has reported as offline leaves the ISR, and loses the
  leadership of its partition.

Version notes
  One version.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import answer_broker
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: AssignReplicasToDirsRequest, _context: RequestContext
) -> Awaitable[AssignReplicasToDirsResponse]:
    return answer_broker(
        request, parts.controller.assign_replicas_to_dirs(request), AssignReplicasToDirsResponse
    )
