"""Produce: a producer appends record batches to partitions. The codec does not read the batches."""

from __future__ import annotations

from uuid import UUID

from penstock.ids import Buffer
from penstock.protocol.schema import (
    array,
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


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    @struct
    class TopicData:
        @struct
        class PartitionData:
            index: int = int32("3+")
            records: Buffer | None = record_batches("3+", nullable="3+")

        name: str = string("3-12", ignorable=True)
        topic_id: UUID = uuid("13+", ignorable=True)
        partition_data: tuple[PartitionData, ...] = array(PartitionData, "3+")

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16("3+")
    timeout_ms: int = int32("3+")
    topic_data: tuple[TopicData, ...] = array(TopicData, "3+")


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    @struct
    class Response:
        @struct
        class PartitionResponse:
            @struct
            class RecordError:
                batch_index: int = int32("8+")
                batch_index_error_message: str | None = string("8+", nullable="8+", default=None)

            @struct
            class CurrentLeader:
                leader_id: int = int32("10+", default=-1)
                leader_epoch: int = int32("10+", default=-1)

            index: int = int32("3+")
            error_code: int = int16("3+")
            base_offset: int = int64("3+")
            log_append_time_ms: int = int64("3+", default=-1, ignorable=True)
            log_start_offset: int = int64("5+", default=-1, ignorable=True)
            record_errors: tuple[RecordError, ...] = array(RecordError, "8+", ignorable=True)
            error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
            current_leader: CurrentLeader = nested(CurrentLeader, "10+", tag=0)

        name: str = string("3-12", ignorable=True)
        topic_id: UUID = uuid("13+", ignorable=True)
        partition_responses: tuple[PartitionResponse, ...] = array(PartitionResponse, "3+")

    @struct
    class NodeEndpoint:
        node_id: int = int32("10+")
        host: str = string("10+")
        port: int = int32("10+")
        rack: str | None = string("10+", nullable="10+", default=None)

    responses: tuple[Response, ...] = array(Response, "3+")
    throttle_time_ms: int = int32("3+", ignorable=True)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "10+", tag=0)
