"""Keys and values of __transaction_state. `coordinator_logs` frames them."""

from __future__ import annotations

from penstock.protocol.schema import array, int8, int16, int32, int64, message, string, struct


@message(api_key=0, versions="0")
class TransactionLogKey:
    transactional_id: str = string("0+")


@message(api_key=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    @struct
    class TransactionPartition:
        topic: str = string("0+")
        partition_ids: tuple[int, ...] = array(int32, "0+")

    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", tag=0, default=-1)
    next_producer_id: int = int64("1+", tag=1, default=-1)
    producer_epoch: int = int16("0+")
    next_producer_epoch: int = int16("1+", tag=3, default=-1)
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: tuple[TransactionPartition, ...] | None = array(
        TransactionPartition, "0+", nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2)
