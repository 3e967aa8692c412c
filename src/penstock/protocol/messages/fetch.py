"""Fetch: consumers and followers read record batches from partitions. Replicas of the metadata log
use it too."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    Records,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    record_batches,
    string,
    struct,
    uuid,
)


@message(api_key=1, versions="4-18", flexible="12+")
class FetchRequest:
    @struct
    class ReplicaState:
        replica_id: int = int32("15+", default=-1)
        replica_epoch: int = int64("15+", default=-1)

    @struct
    class Topic:
        @struct
        class Partition:
            partition: int = int32("4+")
            current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
            fetch_offset: int = int64("4+")
            last_fetched_epoch: int = int32("12+", default=-1)
            log_start_offset: int = int64("5+", default=-1, ignorable=True)
            partition_max_bytes: int = int32("4+")
            replica_directory_id: UUID = uuid("17+", tag=0, ignorable=True)
            high_watermark: int = int64("18+", tag=1, default=2**63 - 1, ignorable=True)

        topic: str = string("4-12", ignorable=True)
        topic_id: UUID = uuid("13+", ignorable=True)
        partitions: tuple[Partition, ...] = array(Partition, "4+")

    @struct
    class ForgottenTopic:
        topic: str = string("7-12", ignorable=True)
        topic_id: UUID = uuid("13+", ignorable=True)
        partitions: tuple[int, ...] = array(int32, "7+")

    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: int = int32("4-14", default=-1)
    replica_state: ReplicaState = nested(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32("4+")
    min_bytes: int = int32("4+")
    max_bytes: int = int32("4+", default=2**31 - 1, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "4+")
    forgotten_topics_data: tuple[ForgottenTopic, ...] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


@message(api_key=1, versions="4-18", flexible="12+")
class FetchResponse:
    @struct
    class Response:
        @struct
        class Partition:
            @struct
            class DivergingEpoch:
                epoch: int = int32("12+", default=-1)
                end_offset: int = int64("12+", default=-1)

            @struct
            class CurrentLeader:
                leader_id: int = int32("12+", default=-1)
                leader_epoch: int = int32("12+", default=-1)

            @struct
            class SnapshotId:
                end_offset: int = int64("4+", default=-1)
                epoch: int = int32("4+", default=-1)

            @struct
            class AbortedTransaction:
                producer_id: int = int64("4+")
                first_offset: int = int64("4+")

            partition_index: int = int32("4+")
            error_code: int = int16("4+")
            high_watermark: int = int64("4+")
            last_stable_offset: int = int64("4+", default=-1, ignorable=True)
            log_start_offset: int = int64("5+", default=-1, ignorable=True)
            diverging_epoch: DivergingEpoch = nested(DivergingEpoch, "12+", tag=0)
            current_leader: CurrentLeader = nested(CurrentLeader, "12+", tag=1)
            snapshot_id: SnapshotId = nested(SnapshotId, "12+", tag=2)
            aborted_transactions: tuple[AbortedTransaction, ...] | None = array(
                AbortedTransaction, "4+", nullable="4+", ignorable=True
            )
            preferred_read_replica: int = int32("11+", default=-1)
            records: Records | None = record_batches("4+", nullable="4+")

        topic: str = string("4-12", ignorable=True)
        topic_id: UUID = uuid("13+", ignorable=True)
        partitions: tuple[Partition, ...] = array(Partition, "4+", may_be_encoded=True)

    @struct
    class NodeEndpoint:
        node_id: int = int32("16+")
        host: str = string("16+")
        port: int = int32("16+")
        rack: str | None = string("16+", nullable="16+", default=None)

    throttle_time_ms: int = int32("4+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: tuple[Response, ...] = array(Response, "4+", may_be_encoded=True)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "16+", tag=0)
