"""FindCoordinator: which broker coordinates a group.

Behaviour
  It is the one that leads the group's partition of `__consumer_offsets`. The first who asks has
  that topic made, and is answered once it is there (Kafka answers COORDINATOR_NOT_AVAILABLE, and
  the client asks again). A client that asks while a leader is gone is answered when the next one is
  known. COORDINATOR_NOT_AVAILABLE where there is none, or where the topic cannot be made.

Version notes
  v1 brings the type of the key. v4 asks for many keys at once. v6 adds share groups.

Not implemented
  Transactions and share groups: INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups

Coordinator = FindCoordinatorResponse.Coordinator

GROUP = 0
_BATCHED_SINCE = 4


class Parts(Protocol):
    metadata: MetadataView
    groups: Groups


def handle(
    parts: Parts, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    keys = request.coordinator_keys if context.version >= _BATCHED_SINCE else (request.key,)
    if request.key_type != GROUP:
        message = "there are neither transactions nor share groups on this broker yet"
        return _response(
            [_refused(key, ErrorCode.INVALID_REQUEST, message) for key in keys], context
        )
    return _find(parts, keys, context)


async def _find(
    parts: Parts, keys: Sequence[str], context: RequestContext
) -> FindCoordinatorResponse:
    try:
        found = await parts.groups.find(keys)
    except KafkaError as error:
        return _response(
            [_refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) for key in keys],
            context,
        )
    brokers = {
        broker.node_id: broker
        for broker in parts.metadata.advertised(context.listener_name, context.local_host)
    }
    coordinators = []
    for key, broker_id in zip(keys, found, strict=True):
        broker = brokers.get(broker_id) if broker_id is not None else None
        if broker is None:
            coordinators.append(
                _refused(
                    key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available."
                )
            )
        else:
            coordinators.append(
                Coordinator(
                    key=key,
                    node_id=broker.node_id,
                    host=broker.host,
                    port=broker.port,
                    error_message=None,
                )
            )
    return _response(coordinators, context)


def _refused(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
    )


def _response(coordinators: list[Coordinator], context: RequestContext) -> FindCoordinatorResponse:
    if context.version >= _BATCHED_SINCE:
        return FindCoordinatorResponse(coordinators=tuple(coordinators))
    (only,) = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
