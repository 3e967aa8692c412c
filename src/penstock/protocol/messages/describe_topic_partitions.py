"""DescribeTopicPartitions: describes the partitions of topics, page by page (KIP-966)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    message,
    nested,
    string,
    struct,
    uuid,
)


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    @struct
    class Topic:
        name: str = string("0+")

    @struct
    class Cursor:
        topic_name: str = string("0+")
        partition_index: int = int32("0+")

    topics: tuple[Topic, ...] = array(Topic, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = nested(Cursor, "0+", nullable="0+")


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            error_code: int = int16("0+")
            partition_index: int = int32("0+")
            leader_id: int = int32("0+")
            leader_epoch: int = int32("0+", default=-1, ignorable=True)
            replica_nodes: tuple[int, ...] = array(int32, "0+")
            isr_nodes: tuple[int, ...] = array(int32, "0+")
            eligible_leader_replicas: tuple[int, ...] | None = array(
                int32, "0+", nullable="0+", default=None
            )
            last_known_elr: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None)
            offline_replicas: tuple[int, ...] = array(int32, "0+", ignorable=True)

        error_code: int = int16("0+")
        name: str | None = string("0+", nullable="0+")
        topic_id: UUID = uuid("0+", ignorable=True)
        is_internal: bool = boolean("0+", ignorable=True)
        partitions: tuple[Partition, ...] = array(Partition, "0+")
        topic_authorized_operations: int = int32("0+", default=-(2**31))

    @struct
    class NextCursor:
        topic_name: str = string("0+")
        partition_index: int = int32("0+")

    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "0+")
    next_cursor: NextCursor | None = nested(NextCursor, "0+", nullable="0+")
