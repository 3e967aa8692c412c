"""AlterShareGroupOffsets: moves the start of an empty share group in partitions (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int16, int32, int64, message, string, struct, uuid


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            start_offset: int = int64("0+")

        topic_name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    group_id: str = string("0+")
    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    @struct
    class Response:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            error_code: int = int16("0+")
            error_message: str | None = string("0+", nullable="0+", default=None)

        topic_name: str = string("0+")
        topic_id: UUID = uuid("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    responses: tuple[Response, ...] = array(Response, "0+")
