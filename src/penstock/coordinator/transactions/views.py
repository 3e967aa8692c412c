"""DescribeTransactions and ListTransactions: reads of the transaction table. PURE."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.coordinator.consumer.regex import check_cost
from penstock.coordinator.transactions.responses import describe_error
from penstock.coordinator.transactions.table import TransactionTable
from penstock.coordinator.transactions.transaction import Transaction
from penstock.errors import ErrorCode
from penstock.protocol.messages.describe_transactions import DescribeTransactionsResponse
from penstock.protocol.messages.list_transactions import ListTransactionsResponse


def describe(
    table: TransactionTable, transactional_id: str
) -> DescribeTransactionsResponse.TransactionState:
    """Describe one transaction. Its producer is that of its records, by which partitions know
    it."""
    if not transactional_id:
        return describe_error(transactional_id, ErrorCode.INVALID_REQUEST)
    transaction = table.by_id.get(transactional_id)
    if transaction is None:
        return describe_error(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return DescribeTransactionsResponse.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            DescribeTransactionsResponse.TransactionState.Topic(topic=topic, partitions=indexes)
            for topic, indexes in transaction.partitions.items()
        ),
    )


def list_transactions(
    table: TransactionTable,
    states: Collection[str],
    producer_ids: Collection[int],
    duration_filter_ms: int,
    pattern: str | None,
    wall_ms: int,
) -> Iterator[ListTransactionsResponse.TransactionState | None]:
    """List the present transactions that pass all filters, None for each that does not: the caller
    decides how many it looks at in one turn of the event loop.

    An empty filter passes all, and so does a negative duration. As in Kafka an id that never had a
    transaction passes every duration. KafkaError: the pattern is malformed or too expensive."""
    matches = check_cost(pattern, table.by_id).matches if pattern else None
    state_set, id_set = frozenset(states), frozenset(producer_ids)

    def passes(transaction: Transaction) -> bool:
        return (
            (not state_set or transaction.state.label in state_set)
            and (not id_set or transaction.producer_id in id_set)
            and (duration_filter_ms < 0 or wall_ms - transaction.start_ms > duration_filter_ms)
            and (matches is None or bool(matches(transaction.transactional_id)))
        )

    return (
        ListTransactionsResponse.TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.label,
        )
        if passes(transaction)
        else None
        for transaction in list(table.by_id.values())
    )
