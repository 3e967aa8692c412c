"""AlterPartition: a leader asks the controller to change the in-sync replicas of partitions.

Behaviour
  The controller checks the leader, partition and broker epochs (rule 12), and that every replica
  in the new ISR is unfenced with the broker epoch given. The response has the current state of each
  partition.

Version notes
  v3 gives the broker epoch of each replica (KIP-903).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import answer_broker
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: AlterPartitionRequest, _context: RequestContext
) -> Awaitable[AlterPartitionResponse]:
    return answer_broker(request, parts.controller.alter_partition(request), AlterPartitionResponse)
