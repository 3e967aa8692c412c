"""OffsetForLeaderEpoch: returns the end offset of a leader epoch, to detect log divergence."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, int64, message, string, struct


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition: int = int32("2+")
            current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
            leader_epoch: int = int32("2+")

        topic: str = string("2+")
        partitions: tuple[Partition, ...] = array(Partition, "2+")

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "2+")


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            error_code: int = int16("2+")
            partition: int = int32("2+")
            leader_epoch: int = int32("2+", default=-1, ignorable=True)
            end_offset: int = int64("2+", default=-1)

        topic: str = string("2+")
        partitions: tuple[Partition, ...] = array(Partition, "2+")

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "2+")
