"""Keys and values of __consumer_offsets for share groups (KIP-932). `coordinator_logs` frames
them."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int8, int32, int64, message, string, struct, uuid


@message(api_key=11, versions="0")
class ShareGroupMetadataKey:
    group_id: str = string("0+")


@message(api_key=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")


@message(api_key=10, versions="0")
class ShareGroupMemberMetadataKey:
    group_id: str = string("0+")
    member_id: str = string("0+")


@message(api_key=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: tuple[str, ...] = array(string, "0+")


@message(api_key=12, versions="0")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str = string("0+")


@message(api_key=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)


@message(api_key=13, versions="0")
class ShareGroupTargetAssignmentMemberKey:
    group_id: str = string("0+")
    member_id: str = string("0+")


@message(api_key=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    @struct
    class TopicPartition:
        topic_id: UUID = uuid("0+")
        partitions: tuple[int, ...] = array(int32, "0+")

    topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "0+")


@message(api_key=14, versions="0")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str = string("0+")
    member_id: str = string("0+")


@message(api_key=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    @struct
    class AssignedPartition:
        topic_id: UUID = uuid("0+")
        partitions: tuple[int, ...] = array(int32, "0+")

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: tuple[AssignedPartition, ...] = array(AssignedPartition, "0+")


@message(api_key=15, versions="0")
class ShareGroupStatePartitionMetadataKey:
    group_id: str = string("0+")


@message(api_key=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    @struct
    class TopicPartitions:
        topic_id: UUID = uuid("0+")
        topic_name: str = string("0+")
        partitions: tuple[int, ...] = array(int32, "0+")

    @struct
    class DeletingTopic:
        topic_id: UUID = uuid("0+")
        topic_name: str = string("0+")

    initializing_topics: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
    initialized_topics: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
    deleting_topics: tuple[DeletingTopic, ...] = array(DeletingTopic, "0+")
