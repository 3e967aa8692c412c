"""DescribeQuorum: the leader of the quorum, its voters and observers, and their log end offsets
(KIP-595, KIP-836).

Behaviour
  Only the leader of the quorum knows; every other node forwards the request to it.

Version notes
  v1 adds the times of the last fetch, v2 the endpoints of the voters and an error message.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: DescribeQuorumRequest, context: RequestContext
) -> Awaitable[DescribeQuorumResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


async def decide(
    controller: NodeController, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    return controller.describe_quorum(request)


def refused(_request: DescribeQuorumRequest, error: KafkaError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message)
