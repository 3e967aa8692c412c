"""Heartbeat: a member of a classic group extends its session and learns of a rebalance.

Behaviour
  Answered immediately. REBALANCE_IN_PROGRESS asks the member to rejoin. While its group is being
  loaded a member gets no error, as in Kafka: the coordinator knows nothing of it yet, and its
  session restarts after loading. In a group that migrates to the consumer protocol a heartbeat may
  write; it is then refused while too few replicas are in sync (COORDINATOR_NOT_AVAILABLE).

Version notes
  v3 adds instance ids.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    groups: Groups


def handle(
    parts: Parts, request: HeartbeatRequest, _context: RequestContext
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return parts.groups.heartbeat(request)
