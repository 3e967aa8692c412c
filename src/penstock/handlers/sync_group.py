"""SyncGroup: the leader of a classic group says who is assigned what, and every member is told its
own.

Behaviour
  The answer waits for the leader's, which is written to the log first. A generation or member that
  is not the group's is refused.

Version notes
  v3 brings instance ids, v5 the type and name of the protocol, which must be the group's.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.coordinator.classic.responses import sync_refused
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of, check_size
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups
    from penstock.world import Clock


class Parts(Protocol):
    clock: Clock
    metadata: MetadataView
    groups: Groups


def handle(
    parts: Parts, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group must have an id")
        check_size(parts, sum(len(one.assignment) for one in request.assignments))
    except KafkaError as error:
        return _refused(error)
    caller = caller_of(parts, context)
    return parts.groups.ask(
        request.group_id,
        lambda shard, ticket, now_ms: shard.sync_group(request, caller, ticket, now_ms),
        _refused,
    )


def _refused(error: KafkaError) -> SyncGroupResponse:
    return sync_refused(error.code)
