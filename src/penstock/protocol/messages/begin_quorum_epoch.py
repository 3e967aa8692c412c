"""BeginQuorumEpoch: the new leader of the metadata quorum announces itself to the voters."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int16, int32, message, string, struct, uint16, uuid


@message(api_key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            voter_directory_id: UUID = uuid("1+", ignorable=True)
            leader_id: int = int32("0+")
            leader_epoch: int = int32("0+")

        topic_name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    @struct
    class LeaderEndpoint:
        name: str = string("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "0+")
    leader_endpoints: tuple[LeaderEndpoint, ...] = array(LeaderEndpoint, "1+", ignorable=True)


@message(api_key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("0+")
            error_code: int = int16("0+")
            leader_id: int = int32("0+")
            leader_epoch: int = int32("0+")

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
