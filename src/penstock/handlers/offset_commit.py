"""OffsetCommit: how far a group has read.

Behaviour
  Every partition has its own outcome. A member must be in the group's present generation, or epoch;
  who is no member may commit to a group that has none (generation -1). Answered when it is
  committed in the log; COORDINATOR_NOT_AVAILABLE after offsets.commit.timeout.ms.
  UNKNOWN_TOPIC_OR_PARTITION for a partition that is not there, OFFSET_METADATA_TOO_LARGE beyond
  offset.metadata.max.bytes.

Version notes
  Up to v4 the client says how long to keep it. v6 brings the leader epoch, v7 instance ids, v9
  serves the consumer protocol (STALE_MEMBER_EPOCH), v10 names topics by id.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of, with_answer
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.schema import changed

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups
    from penstock.world import Clock

Topic = OffsetCommitRequest.Topic
TopicAnswer = OffsetCommitResponse.Topic
Answer = TopicAnswer.Partition

_IDS_SINCE = 10


class Parts(Protocol):
    clock: Clock
    metadata: MetadataView
    groups: Groups


def handle(
    parts: Parts, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    missing = [
        topic
        for topic in (
            _missing(parts.metadata.image, topic, context.version) for topic in request.topics
        )
        if topic is not None
    ]
    if missing:
        return _without(parts, request, context, missing)
    return _commit(parts, request, context)


def _commit(
    parts: Parts, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    def refused(error: KafkaError) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=tuple(_failed(topic, error.code) for topic in request.topics)
        )

    caller = caller_of(parts, context)
    return parts.groups.ask(
        request.group_id,
        lambda shard, ticket, now_ms: shard.commit_offsets(request, caller, ticket, now_ms),
        refused,
    )


def _failed(topic: Topic, code: ErrorCode) -> TopicAnswer:
    answers = (
        Answer(partition_index=asked.partition_index, error_code=code) for asked in topic.partitions
    )
    return TopicAnswer(name=topic.name, topic_id=topic.topic_id, partitions=tuple(answers))


def _missing(image: MetadataImage, topic: Topic, version: int) -> Topic | None:
    """What of it is not there. A topic that is not there at all is refused by the group."""
    found = image.topics.get(
        image.topic_names.get(topic.topic_id, "") if version >= _IDS_SINCE else topic.name
    )
    if found is None:
        return None
    gone = tuple(
        asked for asked in topic.partitions if asked.partition_index not in found.partitions
    )
    return changed(topic, partitions=gone) if gone else None


def _without(
    parts: Parts, request: OffsetCommitRequest, context: RequestContext, missing: Collection[Topic]
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """The rest is committed all the same."""
    gone = {
        (topic.name, topic.topic_id, asked.partition_index)
        for topic in missing
        for asked in topic.partitions
    }
    failed = tuple(_failed(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for topic in missing)
    left = (
        changed(
            topic,
            partitions=tuple(
                one
                for one in topic.partitions
                if (topic.name, topic.topic_id, one.partition_index) not in gone
            ),
        )
        for topic in request.topics
    )
    rest = changed(request, topics=tuple(topic for topic in left if topic.partitions))
    if not rest.topics:
        return OffsetCommitResponse(topics=failed)
    return with_answer(
        _commit(parts, rest, context),
        lambda answer: OffsetCommitResponse(topics=answer.topics + failed),
    )
