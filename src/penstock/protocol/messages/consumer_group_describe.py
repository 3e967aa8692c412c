"""ConsumerGroupDescribe: describes consumer groups (KIP-848) and their members."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    nested,
    string,
    struct,
    uuid,
)


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: tuple[str, ...] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    @struct
    class Group:
        @struct
        class Member:
            @struct
            class Assignment:
                @struct
                class TopicPartition:
                    topic_id: UUID = uuid("0+")
                    topic_name: str = string("0+")
                    partitions: tuple[int, ...] = array(int32, "0+")

                topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "0+")

            member_id: str = string("0+")
            instance_id: str | None = string("0+", nullable="0+", default=None)
            rack_id: str | None = string("0+", nullable="0+", default=None)
            member_epoch: int = int32("0+")
            client_id: str = string("0+")
            client_host: str = string("0+")
            subscribed_topic_names: tuple[str, ...] = array(string, "0+")
            subscribed_topic_regex: str | None = string("0+", nullable="0+", default=None)
            assignment: Assignment = nested(Assignment, "0+")
            target_assignment: Assignment = nested(Assignment, "0+")
            member_type: int = int8("1+", default=-1, ignorable=True)

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
        group_id: str = string("0+")
        group_state: str = string("0+")
        group_epoch: int = int32("0+")
        assignment_epoch: int = int32("0+")
        assignor_name: str = string("0+")
        members: tuple[Member, ...] = array(Member, "0+")
        authorized_operations: int = int32("0+", default=-(2**31))

    throttle_time_ms: int = int32("0+")
    groups: tuple[Group, ...] = array(Group, "0+")
