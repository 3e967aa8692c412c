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

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.coordinator.consumer.regex import compiled
from penstock.coordinator.transactions.transaction import STATE_NAMES
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from penstock.node.shards.transactions import Transactions


class Parts(Protocol):
    transactions: Transactions


def handle(
    parts: Parts, request: ListTransactionsRequest, _context: RequestContext
) -> Awaitable[ListTransactionsResponse]:
    return _list(parts, request)


async def _list(parts: Parts, request: ListTransactionsRequest) -> ListTransactionsResponse:
    try:
        # Also if this broker coordinates nothing.
        compiled(request.transactional_id_pattern or "")
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    states: list[ListTransactionsResponse.TransactionState] = []
    for of_shard in await parts.transactions.list_transactions(request):
        if isinstance(of_shard, KafkaError):
            return ListTransactionsResponse(error_code=of_shard.code)
        states += of_shard
    return ListTransactionsResponse(
        unknown_state_filters=tuple(
            name for name in dict.fromkeys(request.state_filters) if name not in STATE_NAMES
        ),
        transaction_states=tuple(states),
    )
