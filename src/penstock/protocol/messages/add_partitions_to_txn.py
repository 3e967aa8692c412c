"""AddPartitionsToTxn: adds partitions to a transaction, or lets a broker verify that they are part
of it (KIP-890)."""

from __future__ import annotations

from penstock.protocol.schema import array, boolean, int16, int32, int64, message, string, struct


@struct
class Topic:
    name: str = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


@struct
class TopicResult:
    @struct
    class PartitionResult:
        partition_index: int = int32("0+")
        partition_error_code: int = int16("0+")

    name: str = string("0+")
    results_by_partition: tuple[PartitionResult, ...] = array(PartitionResult, "0+")


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    @struct
    class Transaction:
        transactional_id: str = string("4+")
        producer_id: int = int64("4+")
        producer_epoch: int = int16("4+")
        verify_only: bool = boolean("4+")
        topics: tuple[Topic, ...] = array(Topic, "4+")

    transactions: tuple[Transaction, ...] = array(Transaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: tuple[Topic, ...] = array(Topic, "0-3")


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    @struct
    class TransactionResult:
        transactional_id: str = string("4+")
        topic_results: tuple[TopicResult, ...] = array(TopicResult, "4+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: tuple[TransactionResult, ...] = array(TransactionResult, "4+")
    results_by_topic_v3_and_below: tuple[TopicResult, ...] = array(TopicResult, "0-3")
