"""OffsetCommit: a group member commits the offsets that the group has consumed."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int16, int32, int64, message, string, struct, uuid


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("2+")
            committed_offset: int = int64("2+")
            committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
            committed_metadata: str | None = string("2+", nullable="2+")

        name: str = string("2-9", ignorable=True)
        topic_id: UUID = uuid("10+", ignorable=True)
        partitions: tuple[Partition, ...] = array(Partition, "2+")

    group_id: str = string("2+")
    generation_id_or_member_epoch: int = int32("2+", default=-1, ignorable=True)
    member_id: str = string("2+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "2+")


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("2+")
            error_code: int = int16("2+")

        name: str = string("2-9", ignorable=True)
        topic_id: UUID = uuid("10+", ignorable=True)
        partitions: tuple[Partition, ...] = array(Partition, "2+")

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "2+")
