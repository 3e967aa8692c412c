"""DescribeTransactions: the state of transactional ids.

Behaviour
  Every transactional id has its own result: NOT_COORDINATOR if another broker coordinates it,
  TRANSACTIONAL_ID_NOT_FOUND if it does not exist, INVALID_REQUEST if it is empty.

Version notes
  v0 is the only version.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode
from penstock.handlers.awaitables import all_of, then
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

if TYPE_CHECKING:
    from penstock.node.shards.transactions import Transactions


class Parts(Protocol):
    transactions: Transactions


State = DescribeTransactionsResponse.TransactionState


def handle(
    parts: Parts, request: DescribeTransactionsRequest, _context: RequestContext
) -> DescribeTransactionsResponse | Awaitable[DescribeTransactionsResponse]:
    described = all_of(_describe(parts, name) for name in request.transactional_ids)
    return then(
        described, lambda states: DescribeTransactionsResponse(transaction_states=tuple(states))
    )


def _describe(parts: Parts, transactional_id: str) -> State | Awaitable[State]:
    if not transactional_id:
        return State(transactional_id=transactional_id, error_code=ErrorCode.INVALID_REQUEST)
    return parts.transactions.describe(transactional_id)
