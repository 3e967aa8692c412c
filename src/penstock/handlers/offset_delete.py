"""OffsetDelete: takes away what a group has committed for partitions that it does not read any
more.

Behaviour
  GROUP_SUBSCRIBED_TO_TOPIC for topics that a member is subscribed to, NON_EMPTY_GROUP where the
  group's members say not to what, and UNKNOWN_TOPIC_OR_PARTITION for a partition that is not there.

Version notes
  There is v0 only.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of, with_answer
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.schema import changed

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups
    from penstock.world import Clock

Topic = OffsetDeleteRequest.Topic
TopicAnswer = OffsetDeleteResponse.Topic


class Parts(Protocol):
    clock: Clock
    metadata: MetadataView
    groups: Groups


def handle(
    parts: Parts, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    there = tuple(
        topic
        for topic in (
            _filtered(parts.metadata.image, topic, there=True) for topic in request.topics
        )
        if topic.partitions
    )
    missing = (_filtered(parts.metadata.image, topic, there=False) for topic in request.topics)
    failed = tuple(_unknown(topic) for topic in missing if topic.partitions)
    caller, rest = caller_of(parts, context), changed(request, topics=there)
    answer = parts.groups.ask(
        request.group_id,
        lambda shard, ticket, now_ms: shard.delete_offsets(rest, caller, ticket, now_ms),
        _refused,
    )
    return (
        with_answer(
            answer, lambda one: one if one.error_code else changed(one, topics=one.topics + failed)
        )
        if failed
        else answer
    )


def _filtered(image: MetadataImage, topic: Topic, *, there: bool) -> Topic:
    """Those of its partitions that are there, or are not."""
    found = image.topics.get(topic.name)
    known = found.partitions if found is not None else {}
    return changed(
        topic,
        partitions=tuple(
            asked for asked in topic.partitions if (asked.partition_index in known) is there
        ),
    )


def _unknown(topic: Topic) -> TopicAnswer:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answers = (
        TopicAnswer.Partition(partition_index=asked.partition_index, error_code=code)
        for asked in topic.partitions
    )
    return TopicAnswer(name=topic.name, partitions=tuple(answers))


def _refused(error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)
