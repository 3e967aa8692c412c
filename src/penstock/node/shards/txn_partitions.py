"""AddPartitionsToTxn: of clients (v0 to v3, one transaction) and of brokers (from v4 on, many).

A transaction gets all partitions of a request or none. If one of them does not exist, the others
are answered OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Collection, Iterable
from typing import Protocol, cast

from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.metadata.image import MetadataImage
from penstock.node.shards.internal_topics import INTERNAL_TOPICS
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    Topic,
    TopicResult,
)

Transaction = AddPartitionsToTxnRequest.Transaction
TransactionResult = AddPartitionsToTxnResponse.TransactionResult
PartitionErrors = dict[TopicPartition, ErrorCode]

_FIRST_BROKER_VERSION = 4
# Older clients know INVALID_PRODUCER_EPOCH alone.
_FIRST_FENCED_VERSION = 2


class Coordinator(Protocol):
    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
        transaction_version: int,
    ) -> PartitionErrors | Awaitable[PartitionErrors]: ...


def add_partitions_to_txn(
    coordinator: Coordinator, image: MetadataImage, request: AddPartitionsToTxnRequest, version: int
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    """Execute a request; the errors are in the response."""
    if version < _FIRST_BROKER_VERSION:
        transactions: tuple[Transaction, ...] = (
            Transaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            ),
        )
    else:
        transactions = request.transactions
    added = [_add(coordinator, image, transaction, version) for transaction in transactions]
    if any(inspect.isawaitable(errors) for errors in added):
        return _respond_later(transactions, added, version)
    return _response(transactions, cast("list[PartitionErrors]", added), version)


def _add(
    coordinator: Coordinator, image: MetadataImage, transaction: Transaction, version: int
) -> PartitionErrors | Awaitable[PartitionErrors]:
    partitions = dict.fromkeys(
        TopicPartition(topic.name, index)
        for topic in transaction.topics
        for index in topic.partitions
    )
    if not transaction.transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    is_from_client = version < _FIRST_BROKER_VERSION
    errors = _unknown(image, transaction.topics, is_from_client)
    if errors:
        return {name: errors.get(name, ErrorCode.OPERATION_NOT_ATTEMPTED) for name in partitions}
    return coordinator.add_partitions(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        tuple(partitions),
        verify_only=transaction.verify_only,
        transaction_version=0 if is_from_client else 2,
    )


def _unknown(
    image: MetadataImage, topics: Iterable[Topic], is_from_client: bool
) -> PartitionErrors:
    """Return the errors of partitions that cannot be part of a transaction. A client may not add an
    internal topic: AddOffsetsToTxn does."""
    errors = {}
    for topic in topics:
        known = image.topics.get(topic.name)
        for index in topic.partitions:
            if is_from_client and topic.name in INTERNAL_TOPICS:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or index not in known.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                continue
            errors[TopicPartition(topic.name, index)] = code
    return errors


async def _respond_later(
    transactions: Iterable[Transaction],
    added: list[PartitionErrors | Awaitable[PartitionErrors]],
    version: int,
) -> AddPartitionsToTxnResponse:
    """The coordinator has decided all of them, in their order. Only their replies are awaited."""
    errors = [await result if inspect.isawaitable(result) else result for result in added]
    return _response(transactions, errors, version)


def _response(
    transactions: Iterable[Transaction], added: Iterable[PartitionErrors], version: int
) -> AddPartitionsToTxnResponse:
    results = tuple(
        TransactionResult(
            transactional_id=transaction.transactional_id,
            topic_results=_topic_results(transaction, errors, version),
        )
        for transaction, errors in zip(transactions, added, strict=True)
    )
    if version >= _FIRST_BROKER_VERSION:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _topic_results(
    transaction: Transaction, errors: PartitionErrors, version: int
) -> tuple[TopicResult, ...]:
    return tuple(
        TopicResult(
            name=topic.name,
            results_by_partition=tuple(
                TopicResult.PartitionResult(
                    partition_index=index,
                    partition_error_code=_known(errors[TopicPartition(topic.name, index)], version),
                )
                for index in topic.partitions
            ),
        )
        for topic in transaction.topics
    )


def _known(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < _FIRST_FENCED_VERSION:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
