"""ConsumerGroupHeartbeat: a member of a consumer group joins, subscribes, gets its assignment, and
leaves (KIP-848).

Behaviour
  Member epoch 0 joins, -1 leaves, -2 leaves temporarily (static members). The broker assigns; a
  partition moves after its owner has revoked it. A heartbeat that changes nothing is answered
  immediately, others when the log has committed the change. While too few replicas of
  __consumer_offsets are in sync, a heartbeat that changes something is refused
  (COORDINATOR_NOT_AVAILABLE), and no session runs out. A subscription above max.message.bytes of
  __consumer_offsets is refused (UNKNOWN_SERVER_ERROR); a target assignment above it is not written,
  and the members keep the last one. With group.version 0 UNSUPPORTED_VERSION.

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
from penstock.coordinator.groups import errors
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    metadata: MetadataView
    groups: Groups


def handle(
    parts: Parts, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    refusal = consumer_groups_refusal(parts.metadata.image)
    if refusal is not None:
        return errors.consumer_group_heartbeat(refusal)
    return parts.groups.consumer_group_heartbeat(request, caller_of(context))
