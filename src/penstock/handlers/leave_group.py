"""LeaveGroup: members leave a classic group, so that the group need not wait for their sessions to
time out.

Behaviour
  Each member has its own result. Administrators remove a static member by its instance id alone.

Version notes
  Up to v2 one member leaves, and its error is the response's. v3 adds many members and instance
  ids, v5 a reason.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of, then
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    groups: Groups


_BATCHED_VERSION = 3


def handle(
    parts: Parts, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    response = parts.groups.leave_group(request, caller_of(context))
    return (
        then(response, lambda left: _with_member_errors(request, left))
        if context.version >= _BATCHED_VERSION
        else response
    )


def _with_member_errors(
    request: LeaveGroupRequest, response: LeaveGroupResponse
) -> LeaveGroupResponse:
    """A group that does not exist makes every member unknown, not the request: Kafka sends an error
    per member."""
    if response.error_code != ErrorCode.UNKNOWN_MEMBER_ID:
        return response
    return LeaveGroupResponse(
        members=tuple(
            LeaveGroupResponse.Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for member in request.members
        )
    )
