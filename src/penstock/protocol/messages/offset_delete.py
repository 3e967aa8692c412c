"""OffsetDelete: deletes a group's offsets for topics that it no longer subscribes to."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, message, string, struct


@message(api_key=47, versions="0")
class OffsetDeleteRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    group_id: str = string("0+")
    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=47, versions="0")
class OffsetDeleteResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            error_code: int = int16("0+")

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "0+")
