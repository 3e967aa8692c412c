"""Heartbeat: a member of a classic group says that it lives, and learns of a rebalance.

Behaviour
  Answered at once. REBALANCE_IN_PROGRESS asks the member to join again. While its group is being
  loaded a member is told that all is well, as in Kafka: nothing is known of it yet, and its session
  begins anew.

Version notes
  v3 brings instance ids.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups
    from penstock.world import Clock


class Parts(Protocol):
    clock: Clock
    metadata: MetadataView
    groups: Groups


def handle(
    parts: Parts, request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    caller = caller_of(parts, context)
    return parts.groups.ask(
        request.group_id,
        lambda shard, ticket, now_ms: shard.heartbeat(request, caller, ticket, now_ms),
        _refused,
        writes=False,
    )


def _refused(error: KafkaError) -> HeartbeatResponse:
    loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)
