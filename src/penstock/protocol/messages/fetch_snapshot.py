"""FetchSnapshot: a replica of the metadata log fetches a snapshot piece by piece."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    Records,
    array,
    int16,
    int32,
    int64,
    message,
    nested,
    record_batches,
    string,
    struct,
    uint16,
    uuid,
)


@message(api_key=59, versions="0-1", flexible="0+")
class FetchSnapshotRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            @struct
            class SnapshotId:
                end_offset: int = int64("0+")
                epoch: int = int32("0+")

            partition: int = int32("0+")
            current_leader_epoch: int = int32("0+")
            snapshot_id: SnapshotId = nested(SnapshotId, "0+")
            position: int = int64("0+")
            replica_directory_id: UUID = uuid("1+", tag=0, ignorable=True)

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    cluster_id: str | None = string("0+", nullable="0+", tag=0, default=None)
    replica_id: int = int32("0+", default=-1)
    max_bytes: int = int32("0+", default=2**31 - 1)
    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=59, versions="0-1", flexible="0+")
class FetchSnapshotResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            @struct
            class SnapshotId:
                end_offset: int = int64("0+")
                epoch: int = int32("0+")

            @struct
            class CurrentLeader:
                leader_id: int = int32("0+")
                leader_epoch: int = int32("0+")

            index: int = int32("0+")
            error_code: int = int16("0+")
            snapshot_id: SnapshotId = nested(SnapshotId, "0+")
            current_leader: CurrentLeader = nested(CurrentLeader, "0+", tag=0)
            size: int = int64("0+")
            position: int = int64("0+")
            unaligned_records: Records = record_batches("0+")

        name: str = string("0+")
        partitions: tuple[Partition, ...] = array(Partition, "0+")

    @struct
    class NodeEndpoint:
        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    topics: tuple[Topic, ...] = array(Topic, "0+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
