"""OffsetDelete: deletes committed offsets of partitions that a group no longer reads.

Behaviour
  GROUP_SUBSCRIBED_TO_TOPIC for topics that a member is subscribed to, NON_EMPTY_GROUP if the
  members' subscriptions are unknown, and UNKNOWN_TOPIC_OR_PARTITION for a partition that does not
  exist.

Version notes
  There is only v0.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import then
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.schema import changed

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    metadata: MetadataView
    groups: Groups


Topic = OffsetDeleteRequest.Topic


def handle(
    parts: Parts, request: OffsetDeleteRequest, _context: RequestContext
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    image = parts.metadata.image
    existing = (_filtered(image, topic, existing=True) for topic in request.topics)
    missing = (_filtered(image, topic, existing=False) for topic in request.topics)
    errors = tuple(_unknown(topic) for topic in missing if topic.partitions)
    rest = changed(request, topics=tuple(topic for topic in existing if topic.partitions))
    response = parts.groups.offset_delete(rest)
    return then(response, lambda deleted: _with_errors(deleted, errors)) if errors else response


def _with_errors(
    response: OffsetDeleteResponse, errors: tuple[OffsetDeleteResponse.Topic, ...]
) -> OffsetDeleteResponse:
    return response if response.error_code else changed(response, topics=response.topics + errors)


def _filtered(image: MetadataImage, topic: Topic, *, existing: bool) -> Topic:
    """Return the topic with those of its partitions that exist, or with those that do not."""
    known = image.topics.get(topic.name)
    indexes = known.partitions if known is not None else {}
    return changed(
        topic,
        partitions=tuple(
            partition
            for partition in topic.partitions
            if (partition.partition_index in indexes) is existing
        ),
    )


def _unknown(topic: Topic) -> OffsetDeleteResponse.Topic:
    return OffsetDeleteResponse.Topic(
        name=topic.name,
        partitions=tuple(
            OffsetDeleteResponse.Topic.Partition(
                partition_index=partition.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            for partition in topic.partitions
        ),
    )
