"""DeleteRecords: moves the start of partitions forward, so that older records can be deleted."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, int64, message, string, struct


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            offset: int = int64("0+")

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    topics: tuple[Topic, ...] = array(Topic, "0+")
    timeout_ms: int = int32("0+")


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            low_watermark: int = int64("0+")
            error_code: int = int16("0+")

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    throttle_time_ms: int = int32("0+")
    topics: tuple[Topic, ...] = array(Topic, "0+")
