"""AlterReplicaLogDirs: moves replicas between the log directories of a broker."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, message, string, struct


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    @struct
    class Dir:
        @struct
        class Topic:
            name: str = string("1+")
            partitions: tuple[int, ...] = array(int32, "1+")

        path: str = string("1+")
        topics: tuple[Topic, ...] = array(Topic, "1+")

    dirs: tuple[Dir, ...] = array(Dir, "1+")


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    @struct
    class Result:
        @struct
        class Partition:
            partition_index: int = int32("1+")
            error_code: int = int16("1+")

        topic_name: str = string("1+")
        partitions: tuple[Partition, ...] = array(Partition, "1+")

    throttle_time_ms: int = int32("1+")
    results: tuple[Result, ...] = array(Result, "1+")
