"""AllocateProducerIds: a broker asks the controller for a block of producer ids."""

from __future__ import annotations

from penstock.protocol.schema import int16, int32, int64, message


@message(api_key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)


@message(api_key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")
