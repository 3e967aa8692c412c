"""FindCoordinator: the broker that coordinates a group or a transactional id.

Behaviour
  It is the leader of the group's partition of __consumer_offsets, or the transactional id's of
  __transaction_state. The first request creates that topic and is answered once it exists (Kafka
  answers COORDINATOR_NOT_AVAILABLE, and the client retries). While a leader is being elected, the
  response waits for the next one. COORDINATOR_NOT_AVAILABLE if there is none, or if the topic
  cannot be created.

Version notes
  v1 adds the type of the key. v4 has many keys. v6 adds share groups.

Not implemented
  Share groups: INVALID_REQUEST.
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
    from penstock.node.shards.transactions import Transactions


class Parts(Protocol):
    metadata: MetadataView
    groups: Groups
    transactions: Transactions


Coordinator = FindCoordinatorResponse.Coordinator

GROUP_KEY = 0
TRANSACTION_KEY = 1
_BATCHED_VERSION = 4


def handle(
    parts: Parts, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    keys = request.coordinator_keys if context.version >= _BATCHED_VERSION else (request.key,)
    if request.key_type == GROUP_KEY:
        return _find(parts, parts.groups.find_coordinators(keys), keys, context)
    if request.key_type == TRANSACTION_KEY:
        return _find(parts, parts.transactions.find_coordinators(keys), keys, context)
    message = "this broker does not coordinate share groups"
    return _response([_error(key, ErrorCode.INVALID_REQUEST, message) for key in keys], context)


async def _find(
    parts: Parts,
    found: Awaitable[list[int | None]],
    keys: Sequence[str],
    context: RequestContext,
) -> FindCoordinatorResponse:
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        broker_ids = await found
    except KafkaError as error:
        return _response([_error(key, unavailable, error.message) for key in keys], context)
    brokers = {
        broker.node_id: broker
        for broker in parts.metadata.advertised(context.listener_name, context.local_host)
    }
    coordinators = []
    for key, broker_id in zip(keys, broker_ids, strict=True):
        broker = brokers.get(broker_id) if broker_id is not None else None
        if broker is None:
            coordinators.append(_error(key, unavailable, "The coordinator is not available."))
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


def _error(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
    )


def _response(coordinators: list[Coordinator], context: RequestContext) -> FindCoordinatorResponse:
    if context.version >= _BATCHED_VERSION:
        return FindCoordinatorResponse(coordinators=tuple(coordinators))
    (only,) = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
