"""OffsetFetch: the offsets that groups have committed.

Behaviour
  A partition without a committed offset has offset -1 and no error; so has a group that does not
  exist. The response leaves when what it says is committed in the log. With require_stable a
  partition whose offset an open transaction would change is UNSTABLE_OFFSET_COMMIT.

Version notes
  v1 has a group's error in each of its partitions. v2 adds all partitions of a group (topics null)
  and an error of the whole, v5 the leader epoch, v8 many groups, v9 the member and its epoch
  (STALE_MEMBER_EPOCH), v10 names topics by id.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext
from penstock.handlers.group_calls import all_of, then
from penstock.ids import UNKNOWN_OFFSET
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from penstock.node.shards.groups import Groups


class Parts(Protocol):
    groups: Groups


GroupRequest = OffsetFetchRequest.Group
GroupResponse = OffsetFetchResponse.Group
Topic = OffsetFetchResponse.Topic
Partition = Topic.Partition

_GROUP_ERROR_VERSION = 2
_BATCHED_VERSION = 8


def handle(
    parts: Parts, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    version = context.version
    if version >= _BATCHED_VERSION:
        fetched = [
            parts.groups.offset_fetch(group, request.require_stable, version)
            for group in request.groups
        ]
        return then(all_of(fetched), lambda groups: OffsetFetchResponse(groups=tuple(groups)))
    group = _as_group(request)
    return then(
        parts.groups.offset_fetch(group, request.require_stable, version),
        lambda response: _as_single(response, group, version),
    )


# Before v8 a request is for one group.


def _as_group(request: OffsetFetchRequest) -> GroupRequest:
    topics = request.topics
    if topics is None:
        return GroupRequest(group_id=request.group_id, topics=None)
    return GroupRequest(
        group_id=request.group_id,
        topics=tuple(
            GroupRequest.Topic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in topics
        ),
    )


def _as_single(response: GroupResponse, request: GroupRequest, version: int) -> OffsetFetchResponse:
    if response.error_code and version < _GROUP_ERROR_VERSION:
        topics = tuple(_with_error(topic, response.error_code) for topic in request.topics or ())
        return OffsetFetchResponse(topics=topics)
    return OffsetFetchResponse(
        topics=tuple(_as_topic(topic) for topic in response.topics), error_code=response.error_code
    )


def _with_error(topic: GroupRequest.Topic, code: int) -> Topic:
    partitions = (
        Partition(
            partition_index=index, committed_offset=UNKNOWN_OFFSET, metadata="", error_code=code
        )
        for index in topic.partition_indexes
    )
    return Topic(name=topic.name, partitions=tuple(partitions))


def _as_topic(topic: GroupResponse.Topic) -> Topic:
    partitions = (
        Partition(
            partition_index=partition.partition_index,
            committed_offset=partition.committed_offset,
            committed_leader_epoch=partition.committed_leader_epoch,
            metadata=partition.metadata,
            error_code=partition.error_code,
        )
        for partition in topic.partitions
    )
    return Topic(name=topic.name, partitions=tuple(partitions))
