"""StreamsGroupHeartbeat: a member of a streams group (KIP-1071) joins with its topology, receives
its tasks and leaves."""

from __future__ import annotations

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
    uint16,
)


@message(api_key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatRequest:
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

            @struct
            class CopartitionGroup:
                source_topics: tuple[int, ...] = array(int16, "0+")
                source_topic_regex: tuple[int, ...] = array(int16, "0+")
                repartition_source_topics: tuple[int, ...] = array(int16, "0+")

            subtopology_id: str = string("0+")
            source_topics: tuple[str, ...] = array(string, "0+")
            source_topic_regex: tuple[str, ...] = array(string, "0+")
            state_changelog_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
            repartition_sink_topics: tuple[str, ...] = array(string, "0+")
            repartition_source_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
            copartition_groups: tuple[CopartitionGroup, ...] = array(CopartitionGroup, "0+")

        epoch: int = int32("0+")
        subtopologies: tuple[Subtopology, ...] = array(Subtopology, "0+")

    @struct
    class Task:
        subtopology_id: str = string("0+")
        partitions: tuple[int, ...] = array(int32, "0+")

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

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    endpoint_information_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology: Topology | None = nested(Topology, "0+", nullable="0+")
    active_tasks: tuple[Task, ...] | None = array(Task, "0+", nullable="0+", default=None)
    standby_tasks: tuple[Task, ...] | None = array(Task, "0+", nullable="0+", default=None)
    warmup_tasks: tuple[Task, ...] | None = array(Task, "0+", nullable="0+", default=None)
    process_id: str | None = string("0+", nullable="0+", default=None)
    user_endpoint: UserEndpoint | None = nested(UserEndpoint, "0+", nullable="0+")
    client_tags: tuple[ClientTag, ...] | None = array(ClientTag, "0+", nullable="0+", default=None)
    task_offsets: tuple[TaskOffset, ...] | None = array(
        TaskOffset, "0+", nullable="0+", default=None
    )
    task_end_offsets: tuple[TaskOffset, ...] | None = array(
        TaskOffset, "0+", nullable="0+", default=None
    )
    shutdown_application: bool = boolean("0+")


@message(api_key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatResponse:
    @struct
    class Status:
        status_code: int = int8("0+")
        status_detail: str = string("0+")

    @struct
    class Task:
        subtopology_id: str = string("0+")
        partitions: tuple[int, ...] = array(int32, "0+")

    @struct
    class EndpointPartitions:
        @struct
        class UserEndpoint:
            host: str = string("0+")
            port: int = uint16("0+")

        @struct
        class TopicPartitions:
            topic: str = string("0+")
            partitions: tuple[int, ...] = array(int32, "0+")

        user_endpoint: UserEndpoint = nested(UserEndpoint, "0+")
        active_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
        standby_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    acceptable_recovery_lag: int = int32("0+")
    task_offset_interval_ms: int = int32("0+")
    status: tuple[Status, ...] | None = array(Status, "0+", nullable="0+")
    active_tasks: tuple[Task, ...] | None = array(Task, "0+", nullable="0+", default=None)
    standby_tasks: tuple[Task, ...] | None = array(Task, "0+", nullable="0+", default=None)
    warmup_tasks: tuple[Task, ...] | None = array(Task, "0+", nullable="0+", default=None)
    endpoint_information_epoch: int = int32("0+")
    partitions_by_user_endpoint: tuple[EndpointPartitions, ...] | None = array(
        EndpointPartitions, "0+", nullable="0+", default=None
    )
