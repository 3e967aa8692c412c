"""OffsetForLeaderEpoch: where a leader epoch ended in a partition, so that a client or follower
finds where its log diverged (KIP-101, KIP-320).

Behaviour
  The response has the largest epoch not above the requested one, and its end offset (exclusive); -1
  and -1 if there is none. current_leader_epoch fences, as in Fetch. As in Kafka the end offset may
  be above the high watermark: a new leader learns only from its followers how far its log is
  committed, and a consumer that got a smaller end would take committed records for truncated ones.

Version notes
  v3 brings the replica id, which is ignored: followers and consumers get the same response.

Not implemented
  -
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.replication.replicas import Replicas

RequestedPartition = OffsetForLeaderEpochRequest.Topic.Partition
TopicResponse = OffsetForLeaderEpochResponse.Topic
PartitionResponse = TopicResponse.Partition


class Parts(Protocol):
    metadata: MetadataView
    replicas: Replicas


def handle(
    parts: Parts, request: OffsetForLeaderEpochRequest, _context: RequestContext
) -> OffsetForLeaderEpochResponse:
    topics = tuple(
        TopicResponse(
            topic=topic.topic,
            partitions=tuple(_end(parts, topic.topic, requested) for requested in topic.partitions),
        )
        for topic in request.topics
    )
    return OffsetForLeaderEpochResponse(topics=topics)


def _end(parts: Parts, name: str, requested: RequestedPartition) -> PartitionResponse:
    try:
        partition = parts.replicas.partition(parts.metadata.topic(name), requested.partition)
        partition.check_leader(requested.current_leader_epoch)
    except KafkaError as error:
        return PartitionResponse(partition=requested.partition, error_code=error.code)
    epoch, end_offset = partition.end_offset_for_epoch(requested.leader_epoch)
    return PartitionResponse(
        partition=requested.partition, leader_epoch=epoch, end_offset=end_offset
    )
