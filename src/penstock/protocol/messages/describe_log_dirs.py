"""DescribeLogDirs: describes a broker's log directories: their replicas, sizes and free space."""

from __future__ import annotations

from penstock.protocol.schema import array, boolean, int16, int32, int64, message, string, struct


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    @struct
    class Topic:
        topic: str = string("1+")
        partitions: tuple[int, ...] = array(int32, "1+")

    topics: tuple[Topic, ...] | None = array(Topic, "1+", nullable="1+")


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    @struct
    class Result:
        @struct
        class Topic:
            @struct
            class Partition:
                partition_index: int = int32("1+")
                partition_size: int = int64("1+")
                offset_lag: int = int64("1+")
                is_future_key: bool = boolean("1+")

            name: str = string("1+")
            partitions: tuple[Partition, ...] = array(Partition, "1+")

        error_code: int = int16("1+")
        log_dir: str = string("1+")
        topics: tuple[Topic, ...] = array(Topic, "1+")
        total_bytes: int = int64("4+", default=-1, ignorable=True)
        usable_bytes: int = int64("4+", default=-1, ignorable=True)
        is_cordoned: bool = boolean("5+", ignorable=True)

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("3+", ignorable=True)
    results: tuple[Result, ...] = array(Result, "1+")
