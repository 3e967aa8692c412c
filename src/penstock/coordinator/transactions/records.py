"""Transactions as records of __transaction_state. PURE."""

from __future__ import annotations

from penstock.coordinator.runtime.step import RECORD_OVERHEAD_BYTES, Record
from penstock.coordinator.transactions.transaction import (
    Partitions,
    Transaction,
    TransactionState,
)
from penstock.errors import ProtocolError
from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.limits import BATCH_HEADER_BYTES
from penstock.protocol.internal.coordinator_logs import TRANSACTION_LOG
from penstock.protocol.internal.transaction_records import TransactionLogKey, TransactionLogValue

# The first version with tagged fields, which needs transaction.version 1.
_FLEXIBLE_VERSION = 1

# Upper bounds: a record without its names and partitions, and a topic and a partition in it.
_RECORD_BYTES = 96
_TOPIC_BYTES = 16
_PARTITION_BYTES = 4


def least_batch_bytes(transactional_id: str, partitions: Partitions) -> int:
    """Return an upper bound of the batch of any record of a transaction with these partitions, so
    that a transaction that can begin can also end."""
    return (
        BATCH_HEADER_BYTES
        + RECORD_OVERHEAD_BYTES
        + _RECORD_BYTES
        + len(transactional_id.encode())
        + sum(
            _TOPIC_BYTES + len(topic.encode()) + _PARTITION_BYTES * len(indexes)
            for topic, indexes in partitions.items()
        )
    )


def tombstone(transactional_id: str) -> Record:
    return Record(_key(transactional_id), None)


def record(transaction: Transaction, transaction_version: int) -> tuple[Record, Transaction]:
    """Return the transaction's record, and the transaction as a replay of that record sees it,
    except that it keeps its soft state.

    Kafka's brokers read version 0 at any transaction.version. It has no place for a successor of
    the producer, which must not be lost even if transaction.version was lowered since.
    """
    is_flexible = transaction_version >= 1 or transaction.next_producer_id != NO_PRODUCER_ID
    if not is_flexible:
        transaction = transaction._replace(version=0, previous_producer_id=NO_PRODUCER_ID)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        next_producer_epoch=transaction.next_producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=(
            None
            if transaction.state is TransactionState.EMPTY
            else tuple(
                TransactionLogValue.TransactionPartition(topic=topic, partition_ids=indexes)
                for topic, indexes in transaction.partitions.items()
            )
        ),
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.version,
    )
    encoded = TRANSACTION_LOG.encode_value(value, _FLEXIBLE_VERSION if is_flexible else 0)
    return Record(_key(transaction.transactional_id), encoded), transaction


def decode(record: Record) -> tuple[str, Transaction | None]:
    """Decode a record; a tombstone has no transaction. UnknownRecord: its type or version is not
    known. ProtocolError: it is damaged."""
    key = TRANSACTION_LOG.decode_key(record.key)
    assert isinstance(key, TransactionLogKey)
    if record.value is None:
        return key.transactional_id, None
    value = TRANSACTION_LOG.decode_value(key, record.value)
    assert isinstance(value, TransactionLogValue)
    return key.transactional_id, _transaction(key.transactional_id, value)


def _transaction(transactional_id: str, value: TransactionLogValue) -> Transaction:
    transaction = Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_last_update_timestamp_ms,
        _state(transactional_id, value.transaction_status),
        value.transaction_start_timestamp_ms,
        {
            entry.topic: tuple(sorted(set(entry.partition_ids)))
            for entry in value.transaction_partitions or ()
        },
        value.client_transaction_version,
        value.previous_producer_id,
        value.next_producer_id,
        value.next_producer_epoch,
        NO_PRODUCER_EPOCH,
    )
    return transaction._replace(last_producer_epoch=transaction.ended_epoch)


def _state(transactional_id: str, status: int) -> TransactionState:
    if not TransactionState.EMPTY <= status <= TransactionState.COMPLETE_ABORT:
        raise ProtocolError(f"transactional id {transactional_id!r} has the unknown state {status}")
    return TransactionState(status)


def _key(transactional_id: str) -> bytes:
    return TRANSACTION_LOG.encode_key(TransactionLogKey(transactional_id=transactional_id))
