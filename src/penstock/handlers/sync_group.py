"""SyncGroup: the leader of a classic group assigns, and every member gets its assignment.

Behaviour
  The responses wait for the leader's assignment and its commit in the log. A stale generation or
  unknown member is refused.

Version notes
  v3 adds instance ids, v5 the type and name of the protocol, which must be the group's.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.coordinator.classic.responses import sync_error
from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    groups: Groups


def handle(
    parts: Parts, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    if not request.group_id:
        return sync_error(ErrorCode.INVALID_GROUP_ID)
    return parts.groups.sync_group(request, caller_of(context))
