"""ConsumerGroupHeartbeat: a member of a consumer group joins, says what it reads, learns what it is
assigned, and leaves (KIP-848).

Behaviour
  Epoch 0 joins, -1 leaves, -2 leaves for a while (static members). The broker assigns; what has to
  move is given up by its owner first. A heartbeat that changes nothing is answered at once, others
  when the log has them. With group.version 0 UNSUPPORTED_VERSION.

Version notes
  v1 lets the client choose its member id, and subscribe by a regular expression that the broker
  resolves.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.controller.features import consumer_groups_refusal
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups
    from penstock.world import Clock


class Parts(Protocol):
    clock: Clock
    metadata: MetadataView
    groups: Groups


def handle(
    parts: Parts, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    refusal = consumer_groups_refusal(parts.metadata.image)
    if refusal is not None:
        return _refused(refusal)
    caller = caller_of(parts, context)
    return parts.groups.ask(
        request.group_id,
        lambda shard, ticket, now_ms: shard.consumer_heartbeat(request, caller, ticket, now_ms),
        _refused,
    )


def _refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error.code, error_message=error.message, assignment=None
    )
