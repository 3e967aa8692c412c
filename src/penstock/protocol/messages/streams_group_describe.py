"""StreamsGroupDescribe: describes streams groups (KIP-1071), their topologies and members."""

from __future__ import annotations

from penstock.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uint16,
)


@message(api_key=89, versions="0", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: tuple[str, ...] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


@message(api_key=89, versions="0", flexible="0+")
class StreamsGroupDescribeResponse:
    @struct
    class Group:
        @struct
        class Topology:
            @struct
            class Subtopology:
                @struct
                class TopicInfo:
                    @struct
                    class TopicConfig:
                        key: str = string("0+")
                        value: str = string("0+")

                    name: str = string("0+")
                    partitions: int = int32("0+")
                    replication_factor: int = int16("0+")
                    topic_configs: tuple[TopicConfig, ...] = array(TopicConfig, "0+")

                subtopology_id: str = string("0+")
                source_topics: tuple[str, ...] = array(string, "0+")
                repartition_sink_topics: tuple[str, ...] = array(string, "0+")
                state_changelog_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
                repartition_source_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")

            epoch: int = int32("0+")
            subtopologies: tuple[Subtopology, ...] | None = array(
                Subtopology, "0+", nullable="0+", default=None
            )

        @struct
        class Member:
            @struct
            class UserEndpoint:
                host: str = string("0+")
                port: int = uint16("0+")

            @struct
            class ClientTag:
                key: str = string("0+")
                value: str = string("0+")

            @struct
            class TaskOffset:
                subtopology_id: str = string("0+")
                partition: int = int32("0+")
                offset: int = int64("0+")

            @struct
            class Assignment:
                @struct
                class Task:
                    subtopology_id: str = string("0+")
                    partitions: tuple[int, ...] = array(int32, "0+")

                active_tasks: tuple[Task, ...] = array(Task, "0+")
                standby_tasks: tuple[Task, ...] = array(Task, "0+")
                warmup_tasks: tuple[Task, ...] = array(Task, "0+")

            member_id: str = string("0+")
            member_epoch: int = int32("0+")
            instance_id: str | None = string("0+", nullable="0+", default=None)
            rack_id: str | None = string("0+", nullable="0+", default=None)
            client_id: str = string("0+")
            client_host: str = string("0+")
            topology_epoch: int = int32("0+")
            process_id: str = string("0+")
            user_endpoint: UserEndpoint | None = nested(UserEndpoint, "0+", nullable="0+")
            client_tags: tuple[ClientTag, ...] = array(ClientTag, "0+")
            task_offsets: tuple[TaskOffset, ...] = array(TaskOffset, "0+")
            task_end_offsets: tuple[TaskOffset, ...] = array(TaskOffset, "0+")
            assignment: Assignment = nested(Assignment, "0+")
            target_assignment: Assignment = nested(Assignment, "0+")
            is_classic: bool = boolean("0+")

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
        group_id: str = string("0+")
        group_state: str = string("0+")
        group_epoch: int = int32("0+")
        assignment_epoch: int = int32("0+")
        topology: Topology | None = nested(Topology, "0+", nullable="0+")
        members: tuple[Member, ...] = array(Member, "0+")
        authorized_operations: int = int32("0+", default=-(2**31))

    throttle_time_ms: int = int32("0+")
    groups: tuple[Group, ...] = array(Group, "0+")
