"""EndTxn: commits or aborts a producer's transaction.

Behaviour
  The response leaves when the decision is committed in the coordinator's log; markers are written
  to the transaction's partitions after that. A repeated request gets the same response.
  INVALID_TXN_STATE if there is no transaction or it ended the other way,
  INVALID_PRODUCER_ID_MAPPING if the transactional id is unknown or has another producer id,
  PRODUCER_FENCED for another epoch, INVALID_REQUEST for an empty transactional id. While the
  markers are being written, a repeated request waits, for
  add.partitions.to.txn.retry.backoff.max.ms at most; then it is CONCURRENT_TRANSACTIONS.

Version notes
  Before v2 a fenced producer gets INVALID_PRODUCER_EPOCH. v5 (transaction.version 2, KIP-890)
  returns the producer's next epoch, and a new producer id when epochs are exhausted. A delayed v5
  request cannot end a later transaction. An older one can, if that has the same epoch, as in Kafka.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode
from penstock.handlers.awaitables import then
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from penstock.node.shards.transactions import Transactions


class Parts(Protocol):
    transactions: Transactions


_FIRST_FENCED_VERSION = 2


def handle(
    parts: Parts, request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    response = parts.transactions.end_txn(request, context.version)
    return response if context.version >= _FIRST_FENCED_VERSION else then(response, _without_fenced)


def _without_fenced(response: EndTxnResponse) -> EndTxnResponse:
    if response.error_code != ErrorCode.PRODUCER_FENCED:
        return response
    return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
