"""AlterPartitionReassignments: starts or cancels moving partitions to other replicas."""

from __future__ import annotations

from penstock.protocol.schema import array, boolean, int16, int32, message, string, struct


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None)

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    @struct
    class Response:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            error_code: int = int16("0+")
            error_message: str | None = string("0+", nullable="0+")

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: tuple[Response, ...] = array(Response, "0+")
