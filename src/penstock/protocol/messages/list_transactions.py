"""ListTransactions: lists the transactions of a coordinator."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, int64, message, string, struct


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: tuple[str, ...] = array(string, "0+")
    producer_id_filters: tuple[int, ...] = array(int64, "0+")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    @struct
    class TransactionState:
        transactional_id: str = string("0+")
        producer_id: int = int64("0+")
        transaction_state: str = string("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: tuple[str, ...] = array(string, "0+")
    transaction_states: tuple[TransactionState, ...] = array(
        TransactionState, "0+", may_be_encoded=True
    )
