"""ShareFetch: a member of a share group acquires records, and may acknowledge earlier ones in the
same request (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    Records,
    array,
    boolean,
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


@message(api_key=78, versions="1-2", flexible="1+")
class ShareFetchRequest:
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

    @struct
    class ForgottenTopic:
        topic_id: UUID = uuid("1+")
        partitions: tuple[int, ...] = array(int32, "1+")

    group_id: str | None = string("1+", nullable="1+", default=None)
    member_id: str | None = string("1+", nullable="1+")
    share_session_epoch: int = int32("1+")
    max_wait_ms: int = int32("1+")
    min_bytes: int = int32("1+")
    max_bytes: int = int32("1+", default=2**31 - 1)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: tuple[Topic, ...] = array(Topic, "1+")
    forgotten_topics_data: tuple[ForgottenTopic, ...] = array(ForgottenTopic, "1+")


@message(api_key=78, versions="1-2", flexible="1+")
class ShareFetchResponse:
    @struct
    class Response:
        @struct
        class Partition:
            @struct
            class CurrentLeader:
                leader_id: int = int32("1+")
                leader_epoch: int = int32("1+")

            @struct
            class AcquiredRecord:
                first_offset: int = int64("1+")
                last_offset: int = int64("1+")
                delivery_count: int = int16("1+")

            partition_index: int = int32("1+")
            error_code: int = int16("1+")
            error_message: str | None = string("1+", nullable="1+", default=None)
            acknowledge_error_code: int = int16("1+")
            acknowledge_error_message: str | None = string("1+", nullable="1+", default=None)
            current_leader: CurrentLeader = nested(CurrentLeader, "1+")
            records: Records = record_batches("1+")
            acquired_records: tuple[AcquiredRecord, ...] = array(AcquiredRecord, "1+")

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
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: tuple[Response, ...] = array(Response, "1+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+")
