"""DescribeTopicPartitions: topics and their partitions, in pages (KIP-966).

Behaviour
  Topics are sorted by name; an empty list is all topics. A page has at most
  response_partition_limit and at most 2,000 partitions; if more remain, next_cursor says where the
  next page begins. If the cursor's topic has been deleted, the page begins at the next topic.
  Unknown topics are returned with their error and do not count towards the limit. As in Kafka, all
  topics have their authorized operations.

Version notes
  One version.

Not implemented
  A cursor with a negative partition closes the connection: the response has no field for the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, ProtocolError
from penstock.handlers.authorized_operations import ResourceType, authorized_operations
from penstock.handlers.context import RequestContext
from penstock.handlers.topic_view import (
    INTERNAL_TOPICS,
    absence,
    live_brokers,
    offline_replicas,
    partition_error,
)
from penstock.limits import MAX_DESCRIBED_PARTITIONS
from penstock.metadata.image import TopicImage
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView

Topic = DescribeTopicPartitionsResponse.Topic
NextCursor = DescribeTopicPartitionsResponse.NextCursor

_OPERATIONS = authorized_operations(ResourceType.TOPIC, included=True)


class Parts(Protocol):
    node_id: int
    metadata: MetadataView


def handle(
    parts: Parts, request: DescribeTopicPartitionsRequest, _context: RequestContext
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise ProtocolError(
            f"a DescribeTopicPartitions cursor has the negative partition {cursor.partition_index}"
        )
    first_name, first_index = (
        (cursor.topic_name, cursor.partition_index) if cursor is not None else ("", 0)
    )
    names = {topic.name for topic in request.topics} or set(parts.metadata.image.topics)
    live = live_brokers(parts)
    remaining = max(min(request.response_partition_limit, MAX_DESCRIBED_PARTITIONS), 1)
    described: list[Topic] = []
    for name in sorted(name for name in names if name >= first_name):
        topic = parts.metadata.image.topics.get(name)
        if topic is None:
            described.append(
                Topic(error_code=absence(name), name=name, topic_authorized_operations=_OPERATIONS)
            )
            continue
        indexes = [
            index for index in topic.partitions if name != first_name or index >= first_index
        ]
        if remaining == 0:
            return _page(
                described, NextCursor(topic_name=name, partition_index=indexes[0] if indexes else 0)
            )
        described.append(_topic(topic, indexes[:remaining], live))
        if len(indexes) > remaining:
            return _page(described, NextCursor(topic_name=name, partition_index=indexes[remaining]))
        remaining -= len(indexes)
    return _page(described, None)


def _page(topics: list[Topic], next_cursor: NextCursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=next_cursor)


def _topic(topic: TopicImage, indexes: list[int], live: set[int]) -> Topic:
    return Topic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(_partition(topic, index, live) for index in indexes),
        topic_authorized_operations=_OPERATIONS,
    )


def _partition(topic: TopicImage, index: int, live: set[int]) -> Topic.Partition:
    state = topic.partitions[index]
    return Topic.Partition(
        error_code=partition_error(state, live),
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        eligible_leader_replicas=state.eligible_leader_replicas,
        last_known_elr=state.last_known_elr,
        offline_replicas=offline_replicas(state, live),
    )
