"""ShareGroupHeartbeat: a member of a share group (KIP-932) joins, receives its assignment and
leaves."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int16, int32, message, nested, string, struct, uuid


@message(api_key=76, versions="1", flexible="1+")
class ShareGroupHeartbeatRequest:
    group_id: str = string("1+")
    member_id: str = string("1+")
    member_epoch: int = int32("1+")
    rack_id: str | None = string("1+", nullable="1+", default=None)
    subscribed_topic_names: tuple[str, ...] | None = array(
        string, "1+", nullable="1+", default=None
    )


@message(api_key=76, versions="1", flexible="1+")
class ShareGroupHeartbeatResponse:
    @struct
    class Assignment:
        @struct
        class TopicPartition:
            topic_id: UUID = uuid("1+")
            partitions: tuple[int, ...] = array(int32, "1+")

        topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "1+")

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable="1+", default=None)
    member_id: str | None = string("1+", nullable="1+", default=None)
    member_epoch: int = int32("1+")
    heartbeat_interval_ms: int = int32("1+")
    assignment: Assignment | None = nested(Assignment, "1+", nullable="1+")
