"""OffsetCommit: a group commits how far it has read.

Behaviour
  Every partition has its own result. A member must be in the group's present generation, or member
  epoch. A client that is no member may commit to a group without members (generation -1). The
  response leaves when the offsets are committed in the log; after offsets.commit.timeout.ms it is
  COORDINATOR_NOT_AVAILABLE. All offsets of a request are written atomically: if their batch exceeds
  max.message.bytes, none is written (UNKNOWN_SERVER_ERROR). UNKNOWN_TOPIC_OR_PARTITION for a
  partition that does not exist, OFFSET_METADATA_TOO_LARGE beyond offset.metadata.max.bytes.

Version notes
  Up to v4 the client sets the retention. v6 adds the leader epoch, v7 instance ids, v9 serves the
  consumer protocol (STALE_MEMBER_EPOCH), v10 names topics by id.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING, Protocol

from penstock.coordinator.groups.errors import offset_commit_topic
from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of, then
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.schema import changed

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    metadata: MetadataView
    groups: Groups


Topic = OffsetCommitRequest.Topic

_TOPIC_ID_VERSION = 10


def handle(
    parts: Parts, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    image = parts.metadata.image
    missing = [
        topic
        for topic in (_missing(image, topic, context.version) for topic in request.topics)
        if topic is not None
    ]
    if missing:
        return _commit_existing(parts, request, context, missing)
    return parts.groups.offset_commit(request, caller_of(context))


def _missing(image: MetadataImage, topic: Topic, version: int) -> Topic | None:
    """Return the topic with those of its partitions that do not exist. The group refuses a topic
    that does not exist at all."""
    known = image.topics.get(
        image.topic_names.get(topic.topic_id, "") if version >= _TOPIC_ID_VERSION else topic.name
    )
    if known is None:
        return None
    missing = tuple(
        partition
        for partition in topic.partitions
        if partition.partition_index not in known.partitions
    )
    return changed(topic, partitions=missing) if missing else None


def _commit_existing(
    parts: Parts, request: OffsetCommitRequest, context: RequestContext, missing: Collection[Topic]
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commit the partitions that exist."""
    excluded = {
        (topic.name, topic.topic_id, partition.partition_index)
        for topic in missing
        for partition in topic.partitions
    }
    errors = tuple(
        offset_commit_topic(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for topic in missing
    )
    existing = (
        changed(
            topic,
            partitions=tuple(
                partition
                for partition in topic.partitions
                if (topic.name, topic.topic_id, partition.partition_index) not in excluded
            ),
        )
        for topic in request.topics
    )
    rest = changed(request, topics=tuple(topic for topic in existing if topic.partitions))
    if not rest.topics:
        return OffsetCommitResponse(topics=errors)
    return then(
        parts.groups.offset_commit(rest, caller_of(context)),
        lambda response: OffsetCommitResponse(topics=response.topics + errors),
    )
