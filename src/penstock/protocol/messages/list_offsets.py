"""ListOffsets: finds offsets by timestamp, and the earliest and latest of a partition."""

from __future__ import annotations

from penstock.protocol.schema import array, int8, int16, int32, int64, message, string, struct


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("1+")
            current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
            timestamp: int = int64("1+")

        name: str = string("1+")
        partitions: tuple[Partition, ...] = array(Partition, "1+")

    replica_id: int = int32("1+")
    isolation_level: int = int8("2+")
    topics: tuple[Topic, ...] = array(Topic, "1+")
    timeout_ms: int = int32("10+", ignorable=True)


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("1+")
            error_code: int = int16("1+")
            timestamp: int = int64("1+", default=-1)
            offset: int = int64("1+", default=-1)
            leader_epoch: int = int32("4+", default=-1)

        name: str = string("1+")
        partitions: tuple[Partition, ...] = array(Partition, "1+")

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "1+")
