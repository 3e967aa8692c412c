"""AssignReplicasToDirs: a broker reports the log directories of its replicas to the controller
(KIP-858)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int16, int32, int64, message, struct, uuid


@message(api_key=73, versions="0", flexible="0+")
class AssignReplicasToDirsRequest:
    @struct
    class Directory:
        @struct
        class Topic:
            @struct
            class Partition:
                partition_index: int = int32("0+")

            topic_id: UUID = uuid("0+")
            partitions: tuple[Partition, ...] = array(Partition, "0+")

        id: UUID = uuid("0+")
        topics: tuple[Topic, ...] = array(Topic, "0+")

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: tuple[Directory, ...] = array(Directory, "0+")


@message(api_key=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    @struct
    class Directory:
        @struct
        class Topic:
            @struct
            class Partition:
                partition_index: int = int32("0+")
                error_code: int = int16("0+")

            topic_id: UUID = uuid("0+")
            partitions: tuple[Partition, ...] = array(Partition, "0+")

        id: UUID = uuid("0+")
        topics: tuple[Topic, ...] = array(Topic, "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: tuple[Directory, ...] = array(Directory, "0+")
