"""JoinGroup: a member joins a classic group, or says again that it is one.

Behaviour
  The answer waits until all members have joined, or until the rebalance timeout. The leader is told
  of all members; it assigns. A consumer that comes without a member id is given one and asked to
  come again with it (MEMBER_ID_REQUIRED), unless it has an instance id. A group that speaks the
  consumer protocol takes in members that speak the classic one (KIP-848).

Version notes
  v1 brings the rebalance timeout (before, the session's). v4 asks for the member id as said. v5
  brings instance ids, v7 the type and the name of the protocol (which may be null from here on), v8
  a reason, v9 lets a static leader keep the assignment.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.coordinator.classic.responses import join_refused
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of, check_size
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups
    from penstock.world import Clock


class Parts(Protocol):
    clock: Clock
    metadata: MetadataView
    groups: Groups


def handle(
    parts: Parts, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    def refused(error: KafkaError) -> JoinGroupResponse:
        return join_refused(error.code, request.member_id, context.version)

    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group must have an id")
        check_size(
            parts, max((len(protocol.metadata) for protocol in request.protocols), default=0)
        )
    except KafkaError as error:
        return refused(error)
    caller = caller_of(parts, context)
    return parts.groups.ask(
        request.group_id,
        lambda shard, ticket, now_ms: shard.join_group(request, caller, ticket, now_ms),
        refused,
    )
