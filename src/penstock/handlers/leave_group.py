"""LeaveGroup: members leave a classic group, so that nobody waits for their session to end.

Behaviour
  Each member has its own outcome. A static member can be removed by its instance id alone, which is
  how administrators do it.

Version notes
  Up to v2 one member leaves, and its error is the answer's. v3 brings many members, and instance
  ids; v5 a reason.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of, with_answer
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups
    from penstock.world import Clock

Member = LeaveGroupResponse.Member

_BATCHED_SINCE = 3


class Parts(Protocol):
    clock: Clock
    metadata: MetadataView
    groups: Groups


def handle(
    parts: Parts, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    caller = caller_of(parts, context)
    answer = parts.groups.ask(
        request.group_id,
        lambda shard, ticket, now_ms: shard.leave_group(request, caller, ticket, now_ms),
        _refused,
    )
    return (
        with_answer(answer, lambda one: _of_each(request, one))
        if context.version >= _BATCHED_SINCE
        else answer
    )


def _refused(error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


def _of_each(request: LeaveGroupRequest, response: LeaveGroupResponse) -> LeaveGroupResponse:
    """A group that is not there does not know its members, rather than the request: Kafka tells
    each."""
    if response.error_code != ErrorCode.UNKNOWN_MEMBER_ID:
        return response
    code = ErrorCode.UNKNOWN_MEMBER_ID
    members = (
        Member(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code)
        for one in request.members
    )
    return LeaveGroupResponse(members=tuple(members))
