"""DescribeShareGroupOffsets: returns the start offset and lag of share groups in each partition
(KIP-932)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int16, int32, int64, message, string, struct, uuid


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    @struct
    class Group:
        @struct
        class Topic:
            topic_name: str = string("0+")
            partitions: tuple[int, ...] = array(int32, "0+")

        group_id: str = string("0+")
        topics: tuple[Topic, ...] | None = array(Topic, "0+", nullable="0+")

    groups: tuple[Group, ...] = array(Group, "0+")


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    @struct
    class Group:
        @struct
        class Topic:
            @struct
            class Partition:
                partition_index: int = int32("0+")
                start_offset: int = int64("0+")
                leader_epoch: int = int32("0+")
                lag: int = int64("1+", default=-1, ignorable=True)
                error_code: int = int16("0+")
                error_message: str | None = string("0+", nullable="0+", default=None)

            topic_name: str = string("0+")
            topic_id: UUID = uuid("0+")
            partitions: tuple[Partition, ...] = array(Partition, "0+")

        group_id: str = string("0+")
        topics: tuple[Topic, ...] = array(Topic, "0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    throttle_time_ms: int = int32("0+")
    groups: tuple[Group, ...] = array(Group, "0+")
