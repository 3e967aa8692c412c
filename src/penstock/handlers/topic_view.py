"""A topic as clients are told of it, by Metadata and by DescribeTopicPartitions: which replicas are
there, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from penstock.controller.topics.names import check_topic_name
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import NO_LEADER, PartitionState

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView

# Topics that coordinators write; clients may read them, no more.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Parts(Protocol):
    node_id: int
    metadata: MetadataView


def live_brokers(parts: Parts) -> set[int]:
    """The answering node is alive, whatever the image says while it registers."""
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
    """Why there is no topic of this name: perhaps it could not be."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
