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

from collections.abc import Awaitable, Container
from typing import TYPE_CHECKING, Protocol

from penstock.coordinator.groups.errors import offset_commit_topic
from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import caller_of, split_missing, then
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.schema import changed

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    metadata: MetadataView
    groups: Groups


_TOPIC_ID_VERSION = 10


def handle(
    parts: Parts, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    image, by_id = parts.metadata.image, context.version >= _TOPIC_ID_VERSION

    def known(topic: OffsetCommitRequest.Topic) -> Container[int] | None:
        """The group refuses a topic that does not exist at all."""
        name = image.topic_names.get(topic.topic_id, "") if by_id else topic.name
        found = image.topics.get(name)
        return None if found is None else found.partitions

    existing, missing = split_missing(request.topics, known)
    errors = tuple(
        offset_commit_topic(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for topic in missing
    )
    if not errors:
        return parts.groups.offset_commit(request, caller_of(context))
    if not existing:
        return OffsetCommitResponse(topics=errors)
    return then(
        parts.groups.offset_commit(changed(request, topics=existing), caller_of(context)),
        lambda response: OffsetCommitResponse(topics=response.topics + errors),
    )
