"""EndTxn: commits or aborts a transaction."""

from __future__ import annotations

from penstock.protocol.schema import boolean, int16, int32, int64, message, string


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
