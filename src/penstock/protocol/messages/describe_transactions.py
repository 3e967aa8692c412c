"""DescribeTransactions: describes transactions by their transactional ids."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, int64, message, string, struct


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: tuple[str, ...] = array(string, "0+")


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    @struct
    class TransactionState:
        @struct
        class Topic:
            topic: str = string("0+")
            partitions: tuple[int, ...] = array(int32, "0+")

        error_code: int = int16("0+")
        transactional_id: str = string("0+")
        transaction_state: str = string("0+")
        transaction_timeout_ms: int = int32("0+")
        transaction_start_time_ms: int = int64("0+")
        producer_id: int = int64("0+")
        producer_epoch: int = int16("0+")
        topics: tuple[Topic, ...] = array(Topic, "0+")

    throttle_time_ms: int = int32("0+")
    transaction_states: tuple[TransactionState, ...] = array(TransactionState, "0+")
