"""ShareAcknowledge: a member of a share group acknowledges records: accept, release, reject or
renew (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uuid,
)


@message(api_key=79, versions="1-2", flexible="1+")
class ShareAcknowledgeRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            @struct
            class AcknowledgementBatch:
                first_offset: int = int64("1+")
                last_offset: int = int64("1+")
                acknowledge_types: tuple[int, ...] = array(int8, "1+")

            partition_index: int = int32("1+")
            acknowledgement_batches: tuple[AcknowledgementBatch, ...] = array(
                AcknowledgementBatch, "1+"
            )

        topic_id: UUID = uuid("1+")
        partitions: tuple[Partition, ...] = array(Partition, "1+")

    group_id: str | None = string("1+", nullable="1+", default=None)
    member_id: str | None = string("1+", nullable="1+")
    share_session_epoch: int = int32("1+")
    is_renew_ack: bool = boolean("2+")
    topics: tuple[Topic, ...] = array(Topic, "1+")


@message(api_key=79, versions="1-2", flexible="1+")
class ShareAcknowledgeResponse:
    @struct
    class Response:
        @struct
        class Partition:
            @struct
            class CurrentLeader:
                leader_id: int = int32("1+")
                leader_epoch: int = int32("1+")

            partition_index: int = int32("1+")
            error_code: int = int16("1+")
            error_message: str | None = string("1+", nullable="1+", default=None)
            current_leader: CurrentLeader = nested(CurrentLeader, "1+")

        topic_id: UUID = uuid("1+")
        partitions: tuple[Partition, ...] = array(Partition, "1+")

    @struct
    class NodeEndpoint:
        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = int32("1+")
        rack: str | None = string("1+", nullable="1+", default=None)

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable="1+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    responses: tuple[Response, ...] = array(Response, "1+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+")
