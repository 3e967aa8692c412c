"""Responses of the transaction APIs that carry an error. PURE."""

from __future__ import annotations

from collections.abc import Collection

from penstock.errors import ErrorCode
from penstock.ids import NO_PRODUCER_EPOCH, TopicPartition
from penstock.protocol.messages.describe_transactions import DescribeTransactionsResponse
from penstock.protocol.messages.end_txn import EndTxnResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse


def init_producer_id_error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)


def end_txn_error(code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)


def partition_errors(
    partitions: Collection[TopicPartition], code: ErrorCode
) -> dict[TopicPartition, ErrorCode]:
    return dict.fromkeys(partitions, code)


def describe_error(
    transactional_id: str, code: ErrorCode
) -> DescribeTransactionsResponse.TransactionState:
    return DescribeTransactionsResponse.TransactionState(
        transactional_id=transactional_id, error_code=code
    )
