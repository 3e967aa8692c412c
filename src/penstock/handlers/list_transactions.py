"""ListTransactions: the transactional ids that this broker coordinates.

Behaviour
  COORDINATOR_LOAD_IN_PROGRESS, and no transactions, while any of them are being loaded. A
  transaction must pass all filters. State filters that Kafka does not know are returned; if there
  are no others, nothing is listed.

Version notes
  v1 adds a filter by duration (KIP-994), v2 one by a regular expression that must match the whole
  transactional id (KIP-1152). INVALID_REGULAR_EXPRESSION if it is malformed or too expensive.

Not implemented
  -
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.coordinator.consumer.regex import compiled
from penstock.coordinator.transactions.transaction import STATE_NAMES
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.limits import LISTED_TRANSACTIONS_A_TURN
from penstock.protocol.codec import encode_struct
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from penstock.protocol.schema import EncodedArray
from penstock.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.node.shards.transactions import Transactions


class Parts(Protocol):
    transactions: Transactions


def handle(
    parts: Parts, request: ListTransactionsRequest, context: RequestContext
) -> Awaitable[ListTransactionsResponse]:
    return _list(parts, request, context)


async def _list(
    parts: Parts, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """A coordinator may have 100,000 transactional ids: they are looked at and encoded in turns of
    the event loop."""
    try:
        # Also if this broker coordinates nothing.
        compiled(request.transactional_id_pattern or "")
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    encoded: list[bytes] = []
    count = 0
    for of_shard in await parts.transactions.list_transactions(request):
        if isinstance(of_shard, KafkaError):
            return ListTransactionsResponse(error_code=of_shard.code)
        for state in of_shard:
            if state is not None and _may_describe(context, state.transactional_id):
                encoded.append(encode_struct(ListTransactionsResponse, state, context.version))
            count += 1
            if count % LISTED_TRANSACTIONS_A_TURN == 0:
                await asyncio.sleep(0)
    return ListTransactionsResponse(
        unknown_state_filters=tuple(
            name for name in dict.fromkeys(request.state_filters) if name not in STATE_NAMES
        ),
        transaction_states=EncodedArray(len(encoded), b"".join(encoded)),  # type: ignore[arg-type]
    )


def _may_describe(context: RequestContext, transactional_id: str) -> bool:
    """As in Kafka a client gets the transactions whose ids it may describe."""
    guard = context.guard
    return guard is None or guard.allows(
        AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id, is_filter=True
    )
