"""DescribeQuorum: describes the metadata quorum: leader, voters, observers and how far each has
replicated."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uint16,
    uuid,
)


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")

        topic_name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            @struct
            class Replica:
                replica_id: int = int32("0+")
                replica_directory_id: UUID = uuid("2+")
                log_end_offset: int = int64("0+")
                last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
                last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)

            partition_index: int = int32("0+")
            error_code: int = int16("0+")
            error_message: str | None = string("2+", nullable="2+", ignorable=True)
            leader_id: int = int32("0+")
            leader_epoch: int = int32("0+")
            high_watermark: int = int64("0+")
            current_voters: tuple[Replica, ...] = array(Replica, "0+")
            observers: tuple[Replica, ...] = array(Replica, "0+")

        topic_name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    @struct
    class Node:
        @struct
        class Listener:
            name: str = string("2+")
            host: str = string("2+")
            port: int = uint16("2+")

        node_id: int = int32("2+")
        listeners: tuple[Listener, ...] = array(Listener, "2+")

    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "0+")
    nodes: tuple[Node, ...] = array(Node, "2+")
