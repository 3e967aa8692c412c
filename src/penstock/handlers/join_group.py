"""JoinGroup: a client joins a classic group, or rejoins it.

Behaviour
  The response waits until all members have joined, or until the rebalance timeout. The leader's
  response lists all members; it assigns. A member without an id gets one and must join again with
  it (MEMBER_ID_REQUIRED), unless it has an instance id. A group of the consumer protocol accepts
  members of the classic protocol (KIP-848). A member whose metadata does not fit into the record of
  a generation is refused (UNKNOWN_SERVER_ERROR). Kafka lets it join, and refuses the SyncGroup of
  all members.

Version notes
  v1 adds the rebalance timeout (before, the session timeout is used). v4 requires the member id as
  described. v5 adds instance ids, v7 the type and the name of the protocol (null from v7 on), v8 a
  reason, v9 lets a static leader keep the assignment.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.coordinator.classic.responses import join_error
from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    groups: Groups


def handle(
    parts: Parts, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    if not request.group_id:
        return join_error(ErrorCode.INVALID_GROUP_ID, request.member_id, context.version)
    return parts.groups.join_group(request, caller_of(context))
