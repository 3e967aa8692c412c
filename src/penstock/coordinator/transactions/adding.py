"""AddPartitionsToTxn and AddOffsetsToTxn: partitions of a transaction, added or verified. PURE.

With transaction.version 2 the leader of a partition adds it when the first records arrive; before,
the client adds it and the leader only verifies that (KIP-890).
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.coordinator.transactions.records import least_batch_bytes
from penstock.coordinator.transactions.step import TransactionStep
from penstock.coordinator.transactions.transaction import (
    MAX_EPOCH,
    Producer,
    Transaction,
    by_topic,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition


def add_partitions(
    step: TransactionStep,
    transactional_id: str,
    producer: Producer,
    partitions: Collection[TopicPartition],
    transaction_version: int,
) -> None:
    """Add all partitions to the transaction, which the first ones begin. KafkaError: none was
    added."""
    transaction = _transaction(step, transactional_id)
    # The client may already use the producer that it has from now on: this state comes first.
    if transaction.is_prepared:
        raise _concurrent()
    _check_producer(transaction, producer)
    missing = transaction.missing(by_topic(partitions))
    if transaction.is_ongoing and not missing:
        return
    added = transaction.with_partitions(missing, version=transaction_version, wall_ms=step.wall_ms)
    size = least_batch_bytes(transactional_id, added.partitions)
    limit = step.table.settings.max_batch_bytes
    if size > limit:
        count = sum(map(len, added.partitions.values()))
        step.log(
            f"transactional id {transactional_id}: a transaction of {count} partitions needs a "
            f"record of {size} bytes, and max.message.bytes of __transaction_state is {limit}; use "
            "fewer partitions in a transaction"
        )
        raise KafkaError(
            ErrorCode.TRANSACTION_ABORTABLE, f"a transaction of {count} partitions is too large"
        )
    step.write(added)


def verify_partitions(
    step: TransactionStep,
    transactional_id: str,
    producer: Producer,
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return TRANSACTION_ABORTABLE for each partition that is not part of the transaction."""
    transaction = _transaction(step, transactional_id)
    _check_producer(transaction, producer)
    if transaction.is_prepared:
        raise _concurrent()
    missing = {
        TopicPartition(topic, index)
        for topic, indexes in transaction.missing(by_topic(partitions)).items()
        for index in indexes
    }
    return {
        partition: ErrorCode.TRANSACTION_ABORTABLE if partition in missing else ErrorCode.NONE
        for partition in partitions
    }


def _transaction(step: TransactionStep, transactional_id: str) -> Transaction:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    transaction = step.table.by_id.get(transactional_id)
    if transaction is None:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"there is no transactional id {transactional_id}",
        )
    return transaction


def _check_producer(transaction: Transaction, producer: Producer) -> None:
    current = transaction.producer
    if producer.id != current.id:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"transactional id {transaction.transactional_id} belongs to producer id {current.id}, "
            f"not {producer.id}",
        )
    # Nobody has the largest epoch: it fences, and the marker of a transaction needs a newer one.
    if producer.epoch != current.epoch or producer.epoch == MAX_EPOCH:
        raise KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"epoch {producer.epoch} of producer id {producer.id} is not its epoch {current.epoch}",
        )
    if transaction.is_kept:
        # Records of the new epoch would make the markers, which have the old one, stale.
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, "a prepared transaction can only be committed or aborted"
        )


def _concurrent() -> KafkaError:
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is being completed")
