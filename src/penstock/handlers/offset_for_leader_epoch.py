"""OffsetForLeaderEpoch: where a leader epoch ended in a partition, so that a client or follower
finds where it diverged (KIP-101, KIP-320).

Behaviour
  The answer is the largest epoch not above the one asked for, and its end offset (exclusive); -1
  and -1 for one that the partition never had. current_leader_epoch fences, as in Fetch.

Version notes
  v3 brings the replica id, which gives a client nothing more: no end above the high watermark is
  told.

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

Asked = OffsetForLeaderEpochRequest.Topic.Partition
TopicAnswer = OffsetForLeaderEpochResponse.Topic
Answer = TopicAnswer.Partition


class Parts(Protocol):
    metadata: MetadataView
    replicas: Replicas


def handle(
    parts: Parts, request: OffsetForLeaderEpochRequest, _context: RequestContext
) -> OffsetForLeaderEpochResponse:
    topics = tuple(
        TopicAnswer(
            topic=topic.topic,
            partitions=tuple(_end(parts, topic.topic, asked) for asked in topic.partitions),
        )
        for topic in request.topics
    )
    return OffsetForLeaderEpochResponse(topics=topics)


def _end(parts: Parts, name: str, asked: Asked) -> Answer:
    try:
        partition = parts.replicas.partition(parts.metadata.topic(name), asked.partition)
        partition.check_leader(asked.current_leader_epoch)
    except KafkaError as error:
        return Answer(partition=asked.partition, error_code=error.code)
    epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    return Answer(
        partition=asked.partition,
        leader_epoch=epoch,
        end_offset=min(end_offset, partition.high_watermark),
    )
