"""What Metadata and DescribeTopicPartitions return of a topic: offline replicas, and errors."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from penstock.controller.topics.names import check_topic_name
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import NO_LEADER, PartitionState
from penstock.node.shards import internal_topics

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView

INTERNAL_TOPICS = internal_topics.INTERNAL_TOPICS


class Parts(Protocol):
    node_id: int
    metadata: MetadataView


def live_brokers(parts: Parts) -> set[int]:
    """Return the unfenced brokers, and this one, which may still be registering."""
    return {
        parts.node_id,
        *(broker.id for broker in parts.metadata.image.brokers.values() if not broker.fenced),
    }


def offline_replicas(state: PartitionState, live: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in state.replicas if replica not in live)


def partition_error(state: PartitionState, live: Collection[int]) -> ErrorCode:
    return (
        ErrorCode.LEADER_NOT_AVAILABLE
        if state.leader == NO_LEADER or state.leader not in live
        else ErrorCode.NONE
    )


def absence(name: str) -> ErrorCode:
    """Return the error for a topic that does not exist; its name may be invalid."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
