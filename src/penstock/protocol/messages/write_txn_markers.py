"""WriteTxnMarkers: a transaction coordinator makes partition leaders append commit or abort
markers."""

from __future__ import annotations

from penstock.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    @struct
    class Marker:
        @struct
        class Topic:
            name: str = string("1+")
            partition_indexes: tuple[int, ...] = array(int32, "1+")

        producer_id: int = int64("1+")
        producer_epoch: int = int16("1+")
        transaction_result: bool = boolean("1+")
        topics: tuple[Topic, ...] = array(Topic, "1+")
        coordinator_epoch: int = int32("1+")
        transaction_version: int = int8("2+", ignorable=True)

    markers: tuple[Marker, ...] = array(Marker, "1+")


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    @struct
    class Marker:
        @struct
        class Topic:
            @struct
            class Partition:
                partition_index: int = int32("1+")
                error_code: int = int16("1+")

            name: str = string("1+")
            partitions: tuple[Partition, ...] = array(Partition, "1+")

        producer_id: int = int64("1+")
        topics: tuple[Topic, ...] = array(Topic, "1+")

    markers: tuple[Marker, ...] = array(Marker, "1+")
