"""AddPartitionsToTxn: adds partitions to a producer's transaction, or verifies that they are part
of it.

Behaviour
  A transaction gets all partitions of a request or none: UNKNOWN_TOPIC_OR_PARTITION for those that
  do not exist, OPERATION_NOT_ATTEMPTED for the others. INVALID_PRODUCER_ID_MAPPING if the
  transactional id is unknown or has another producer id, PRODUCER_FENCED for another epoch,
  INVALID_REQUEST for an empty transactional id. While the previous transaction is being completed,
  the request waits up to add.partitions.to.txn.retry.backoff.max.ms; then it is
  CONCURRENT_TRANSACTIONS. With verify_only nothing is added, and TRANSACTION_ABORTABLE is returned
  for a partition that is not part of the transaction.

Version notes
  Up to v3 a client sends one transaction, and internal topics are TOPIC_AUTHORIZATION_FAILED. v4
  and v5 come from brokers (KIP-890) and have many transactions, each with its own result. Before v2
  a fenced producer gets INVALID_PRODUCER_EPOCH.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

if TYPE_CHECKING:
    from penstock.node.shards.transactions import Transactions


class Parts(Protocol):
    transactions: Transactions


def handle(
    parts: Parts, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    return parts.transactions.add_partitions_to_txn(request, context.version)
