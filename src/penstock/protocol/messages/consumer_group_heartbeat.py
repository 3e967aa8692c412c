"""ConsumerGroupHeartbeat: a member of a consumer group (KIP-848) joins, changes its subscription,
receives its assignment and leaves."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int16, int32, message, nested, string, struct, uuid


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    @struct
    class TopicPartition:
        topic_id: UUID = uuid("0+")
        partitions: tuple[int, ...] = array(int32, "0+")

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: tuple[str, ...] | None = array(
        string, "0+", nullable="0+", default=None
    )
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string("0+", nullable="0+", default=None)
    topic_partitions: tuple[TopicPartition, ...] | None = array(
        TopicPartition, "0+", nullable="0+", default=None
    )


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    @struct
    class Assignment:
        @struct
        class TopicPartition:
            topic_id: UUID = uuid("0+")
            partitions: tuple[int, ...] = array(int32, "0+")

        topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = nested(Assignment, "0+", nullable="0+")
