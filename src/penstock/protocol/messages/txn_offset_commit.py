"""TxnOffsetCommit: stores a group's offsets as part of a transaction."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, int64, message, string, struct


@message(api_key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            committed_offset: int = int64("0+")
            committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
            committed_metadata: str | None = string("0+", nullable="0+")

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            error_code: int = int16("0+")

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    throttle_time_ms: int = int32("0+")
    topics: tuple[Topic, ...] = array(Topic, "0+")
