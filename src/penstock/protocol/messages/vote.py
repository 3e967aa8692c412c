"""Vote: a candidate of the metadata quorum requests votes. With pre_vote it asks whether it would
win an election (KIP-996)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uint16,
    uuid,
)


@message(api_key=52, versions="0-2", flexible="0+")
class VoteRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            replica_epoch: int = int32("0+")
            replica_id: int = int32("0+")
            replica_directory_id: UUID = uuid("1+", ignorable=True)
            voter_directory_id: UUID = uuid("1+", ignorable=True)
            last_offset_epoch: int = int32("0+")
            last_offset: int = int64("0+")
            pre_vote: bool = boolean("2+")

        topic_name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=52, versions="0-2", flexible="0+")
class VoteResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            error_code: int = int16("0+")
            leader_id: int = int32("0+")
            leader_epoch: int = int32("0+")
            vote_granted: bool = boolean("0+")

        topic_name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    @struct
    class NodeEndpoint:
        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    error_code: int = int16("0+")
    topics: tuple[Topic, ...] = array(Topic, "0+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
