"""OffsetFetch: returns the committed offsets of groups."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    @struct
    class Topic:
        name: str = string("1-7")
        partition_indexes: tuple[int, ...] = array(int32, "1-7")

    @struct
    class Group:
        @struct
        class Topic:
            name: str = string("8-9", ignorable=True)
            topic_id: UUID = uuid("10+", ignorable=True)
            partition_indexes: tuple[int, ...] = array(int32, "8+")

        group_id: str = string("8+")
        member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
        member_epoch: int = int32("9+", default=-1, ignorable=True)
        topics: tuple[Topic, ...] | None = array(Topic, "8+", nullable="8+")

    group_id: str = string("1-7")
    topics: tuple[Topic, ...] | None = array(Topic, "1-7", nullable="2-7")
    groups: tuple[Group, ...] = array(Group, "8+")
    require_stable: bool = boolean("7+")


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("1-7")
            committed_offset: int = int64("1-7")
            committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
            metadata: str | None = string("1-7", nullable="1-7")
            error_code: int = int16("1-7")

        name: str = string("1-7")
        partitions: tuple[Partition, ...] = array(Partition, "1-7")

    @struct
    class Group:
        @struct
        class Topic:
            @struct
            class Partition:
                partition_index: int = int32("8+")
                committed_offset: int = int64("8+")
                committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
                metadata: str | None = string("8+", nullable="8+")
                error_code: int = int16("8+")

            name: str = string("8-9", ignorable=True)
            topic_id: UUID = uuid("10+", ignorable=True)
            partitions: tuple[Partition, ...] = array(Partition, "8+")

        group_id: str = string("8+")
        topics: tuple[Topic, ...] = array(Topic, "8+")
        error_code: int = int16("8+")

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "1-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: tuple[Group, ...] = array(Group, "8+")
