"""OffsetFetch: how far groups have read.

Behaviour
  A partition for which nothing was committed has offset -1 and no error; so has a group that is not
  there. What is told is committed in the log: the answer waits for that where it must.
  require_stable changes nothing, since no transaction can be open.

Version notes
  v1 has a group's error in each of its partitions. v2 brings all partitions of a group (topics
  null) and an error for the whole, v5 the leader epoch, v8 many groups, v9 the member and its epoch
  (STALE_MEMBER_EPOCH), v10 names topics by id.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import all_of, with_answer
from penstock.ids import UNKNOWN_OFFSET
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from penstock.node.shards.groups import Groups

Asked = OffsetFetchRequest.Group
Group = OffsetFetchResponse.Group
Topic = OffsetFetchResponse.Topic
Partition = Topic.Partition

_WHOLE_ERROR_SINCE = 2
_BATCHED_SINCE = 8


class Parts(Protocol):
    groups: Groups


def handle(
    parts: Parts, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if context.version >= _BATCHED_SINCE:
        return _fetch_all(parts, request, context.version)
    asked = _as_group(request)
    fetched = _fetch(parts, asked, request.require_stable, context.version)
    return with_answer(fetched, lambda group: _as_whole(group, asked, context.version))


def _fetch_all(
    parts: Parts, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    fetched = [_fetch(parts, asked, request.require_stable, version) for asked in request.groups]
    return with_answer(all_of(fetched), lambda groups: OffsetFetchResponse(groups=tuple(groups)))


def _fetch(
    parts: Parts, asked: Asked, require_stable: bool, version: int
) -> Group | Awaitable[Group]:
    def refused(error: KafkaError) -> Group:
        # Older clients know no other error by which they would look for the coordinator again.
        lost = error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        return Group(
            group_id=asked.group_id, error_code=ErrorCode.NOT_COORDINATOR if lost else error.code
        )

    return parts.groups.read(
        asked.group_id, lambda shard: shard.fetch_offsets(asked, require_stable, version), refused
    )


# One group, as it was asked for before many could be.


def _as_group(request: OffsetFetchRequest) -> Asked:
    topics = request.topics
    if topics is None:
        return Asked(group_id=request.group_id, topics=None)
    wanted = (
        Asked.Topic(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics
    )
    return Asked(group_id=request.group_id, topics=tuple(wanted))


def _as_whole(group: Group, asked: Asked, version: int) -> OffsetFetchResponse:
    if group.error_code and version < _WHOLE_ERROR_SINCE:
        topics = tuple(_failed(topic, group.error_code) for topic in asked.topics or ())
        return OffsetFetchResponse(topics=topics)
    return OffsetFetchResponse(
        topics=tuple(_as_topic(topic) for topic in group.topics), error_code=group.error_code
    )


def _failed(topic: Asked.Topic, code: int) -> Topic:
    partitions = (
        Partition(
            partition_index=index, committed_offset=UNKNOWN_OFFSET, metadata="", error_code=code
        )
        for index in topic.partition_indexes
    )
    return Topic(name=topic.name, partitions=tuple(partitions))


def _as_topic(topic: Group.Topic) -> Topic:
    partitions = (
        Partition(
            partition_index=one.partition_index,
            committed_offset=one.committed_offset,
            committed_leader_epoch=one.committed_leader_epoch,
            metadata=one.metadata,
            error_code=one.error_code,
        )
        for one in topic.partitions
    )
    return Topic(name=topic.name, partitions=tuple(partitions))
