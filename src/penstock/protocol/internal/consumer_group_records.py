"""Keys and values of __consumer_offsets for consumer groups (KIP-848). `coordinator_logs` frames
them."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    blob,
    int8,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uuid,
)


@message(api_key=3, versions="0")
class ConsumerGroupMetadataKey:
    group_id: str = string("0+")


@message(api_key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", tag=0)


@message(api_key=4, versions="0")
class ConsumerGroupPartitionMetadataKey:
    """Read, and written only as a tombstone."""

    group_id: str = string("0+")


@message(api_key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """Read, never written."""

    @struct
    class Topic:
        @struct
        class PartitionMetadata:
            partition: int = int32("0+")
            racks: tuple[str, ...] = array(string, "0+")

        topic_id: UUID = uuid("0+")
        topic_name: str = string("0+")
        num_partitions: int = int32("0+")
        partition_metadata: tuple[PartitionMetadata, ...] = array(PartitionMetadata, "0+")

    topics: tuple[Topic, ...] = array(Topic, "0+")


@message(api_key=5, versions="0")
class ConsumerGroupMemberMetadataKey:
    group_id: str = string("0+")
    member_id: str = string("0+")


@message(api_key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    @struct
    class ClassicMemberMetadata:
        @struct
        class SupportedProtocol:
            name: str = string("0+")
            metadata: bytes = blob("0+")

        session_timeout_ms: int = int32("0+")
        supported_protocols: tuple[SupportedProtocol, ...] = array(SupportedProtocol, "0+")

    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: tuple[str, ...] = array(string, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+")
    # Kafka intends null as the default, but its definition says null instead of "null", which makes
    # it the empty struct. Set it to None for a member of the consumer protocol: readers interpret
    # an absent field as a classic member without protocols.
    classic_member_metadata: ClassicMemberMetadata | None = nested(
        ClassicMemberMetadata, "0+", nullable="0+", tag=0, null_by_default=False
    )


@message(api_key=6, versions="0")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = string("0+")


@message(api_key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)


@message(api_key=7, versions="0")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = string("0+")
    member_id: str = string("0+")


@message(api_key=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    @struct
    class TopicPartition:
        topic_id: UUID = uuid("0+")
        partitions: tuple[int, ...] = array(int32, "0+")

    topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "0+")


@message(api_key=8, versions="0")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = string("0+")
    member_id: str = string("0+")


@message(api_key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    @struct
    class TopicPartitions:
        topic_id: UUID = uuid("0+")
        partitions: tuple[int, ...] = array(int32, "0+")
        assignment_epochs: tuple[int, ...] | None = array(int32, "0+", nullable="0+", tag=0)

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
    partitions_pending_revocation: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")


@message(api_key=16, versions="0")
class ConsumerGroupRegularExpressionKey:
    group_id: str = string("0+")
    regular_expression: str = string("0+")


@message(api_key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: tuple[str, ...] = array(string, "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")
