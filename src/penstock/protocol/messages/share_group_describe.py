"""ShareGroupDescribe: describes share groups (KIP-932) and their members."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    message,
    nested,
    string,
    struct,
    uuid,
)


@message(api_key=77, versions="1", flexible="1+")
class ShareGroupDescribeRequest:
    group_ids: tuple[str, ...] = array(string, "1+")
    include_authorized_operations: bool = boolean("1+")


@message(api_key=77, versions="1", flexible="1+")
class ShareGroupDescribeResponse:
    @struct
    class Group:
        @struct
        class Member:
            @struct
            class Assignment:
                @struct
                class TopicPartition:
                    topic_id: UUID = uuid("1+")
                    topic_name: str = string("1+")
                    partitions: tuple[int, ...] = array(int32, "1+")

                topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "1+")

            member_id: str = string("1+")
            rack_id: str | None = string("1+", nullable="1+", default=None)
            member_epoch: int = int32("1+")
            client_id: str = string("1+")
            client_host: str = string("1+")
            subscribed_topic_names: tuple[str, ...] = array(string, "1+")
            assignment: Assignment = nested(Assignment, "1+")

        error_code: int = int16("1+")
        error_message: str | None = string("1+", nullable="1+", default=None)
        group_id: str = string("1+")
        group_state: str = string("1+")
        group_epoch: int = int32("1+")
        assignment_epoch: int = int32("1+")
        assignor_name: str = string("1+")
        members: tuple[Member, ...] = array(Member, "1+")
        authorized_operations: int = int32("1+", default=-(2**31))

    throttle_time_ms: int = int32("1+")
    groups: tuple[Group, ...] = array(Group, "1+")
