"""ListPartitionReassignments: lists the partitions that are being moved."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, message, string, struct


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    @struct
    class Topic:
        name: str = string("0+")
        partition_indexes: tuple[int, ...] = array(int32, "0+")

    timeout_ms: int = int32("0+", default=60000)
    topics: tuple[Topic, ...] | None = array(Topic, "0+", nullable="0+", default=None)


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            replicas: tuple[int, ...] = array(int32, "0+")
            adding_replicas: tuple[int, ...] = array(int32, "0+")
            removing_replicas: tuple[int, ...] = array(int32, "0+")

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topics: tuple[Topic, ...] = array(Topic, "0+")
