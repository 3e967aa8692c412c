"""Keys and values of __consumer_offsets for streams groups (KIP-1071). `coordinator_logs` frames
them."""

from __future__ import annotations

from penstock.protocol.schema import (
    array,
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


@message(api_key=17, versions="0")
class StreamsGroupMetadataKey:
    group_id: str = string("0+")


@message(api_key=17, versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    @struct
    class LastAssignmentConfig:
        key: str = string("0+")
        value: str = string("0+")

    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")
    validated_topology_epoch: int = int32("0+", tag=0, default=-1)
    last_assignment_configs: tuple[LastAssignmentConfig, ...] | None = array(
        LastAssignmentConfig, "0+", nullable="0+", tag=1
    )


@message(api_key=19, versions="0")
class StreamsGroupMemberMetadataKey:
    group_id: str = string("0+")
    member_id: str = string("0+")


@message(api_key=19, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    @struct
    class UserEndpoint:
        host: str = string("0+")
        port: int = uint16("0+")

    @struct
    class ClientTag:
        key: str = string("0+")
        value: str = string("0+")

    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: UserEndpoint | None = nested(UserEndpoint, "0+", nullable="0+")
    client_tags: tuple[ClientTag, ...] = array(ClientTag, "0+")


@message(api_key=20, versions="0")
class StreamsGroupTargetAssignmentMetadataKey:
    group_id: str = string("0+")


@message(api_key=20, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)


@message(api_key=21, versions="0")
class StreamsGroupTargetAssignmentMemberKey:
    group_id: str = string("0+")
    member_id: str = string("0+")


@message(api_key=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    @struct
    class Task:
        subtopology_id: str = string("0+")
        partitions: tuple[int, ...] = array(int32, "0+")

    active_tasks: tuple[Task, ...] = array(Task, "0+")
    standby_tasks: tuple[Task, ...] = array(Task, "0+")
    warmup_tasks: tuple[Task, ...] = array(Task, "0+")


@message(api_key=22, versions="0")
class StreamsGroupCurrentMemberAssignmentKey:
    group_id: str = string("0+")
    member_id: str = string("0+")


@message(api_key=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    @struct
    class Task:
        subtopology_id: str = string("0+")
        partitions: tuple[int, ...] = array(int32, "0+")
        assignment_epochs: tuple[int, ...] | None = array(int32, "0+", nullable="0+", tag=0)

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    active_tasks: tuple[Task, ...] = array(Task, "0+")
    standby_tasks: tuple[Task, ...] = array(Task, "0+")
    warmup_tasks: tuple[Task, ...] = array(Task, "0+")
    active_tasks_pending_revocation: tuple[Task, ...] = array(Task, "0+")
    standby_tasks_pending_revocation: tuple[Task, ...] = array(Task, "0+")
    warmup_tasks_pending_revocation: tuple[Task, ...] = array(Task, "0+")


@message(api_key=23, versions="0")
class StreamsGroupTopologyKey:
    group_id: str = string("0+")


@message(api_key=23, versions="0", flexible="0+")
class StreamsGroupTopologyValue:
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
