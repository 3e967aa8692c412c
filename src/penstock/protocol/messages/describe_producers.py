"""DescribeProducers: describes the active producers of a partition, to find hanging
transactions."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, int64, message, string, struct


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    @struct
    class Topic:
        name: str = string("0+")
        partition_indexes: tuple[int, ...] = array(int32, "0+")

    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            @struct
            class ActiveProducer:
                producer_id: int = int64("0+")
                producer_epoch: int = int32("0+")
                last_sequence: int = int32("0+", default=-1)
                last_timestamp: int = int64("0+", default=-1)
                coordinator_epoch: int = int32("0+")
                current_txn_start_offset: int = int64("0+", default=-1)

            partition_index: int = int32("0+")
            error_code: int = int16("0+")
            error_message: str | None = string("0+", nullable="0+", default=None)
            active_producers: tuple[ActiveProducer, ...] = array(ActiveProducer, "0+")

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    throttle_time_ms: int = int32("0+")
    topics: tuple[Topic, ...] = array(Topic, "0+")
