"""The checks of requests about the offsets that groups commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.errors import ErrorCode
from penstock.handlers.authorization.calls import (
    GROUP_DENIED,
    TOPIC_DENIED,
    Call,
    by_topic,
    each,
    kept,
    nested,
    split,
    then,
    topic_error,
    topic_name,
    with_errors,
)
from penstock.handlers.authorization.guard import Guard
from penstock.handlers.turns import Turns
from penstock.ids import UNKNOWN_OFFSET
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.protocol.schema import changed
from penstock.security.acls import AclOperation, ResourceType

T = TypeVar("T", OffsetCommitRequest.Topic, OffsetFetchRequest.Group.Topic)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP

_BATCHED_OFFSETS_SINCE = 8
_GROUP_ERROR_SINCE = 2


def offset_commit(guard: Guard, request: OffsetCommitRequest, call: Call) -> Turns[Any]:
    """READ on the group and on the topics."""
    topic_response = OffsetCommitResponse.Topic

    def error_of(topic: OffsetCommitRequest.Topic, code: ErrorCode) -> Turns[Any]:
        partitions = yield from each(
            guard.pace,
            topic.partitions,
            lambda partition: topic_response.Partition(
                partition_index=partition.partition_index, error_code=code
            ),
        )
        return topic_response(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

    if not guard.allows(AclOperation.READ, GROUP, request.group_id):
        errors = yield from nested(
            guard.pace, request.topics, lambda topic: error_of(topic, GROUP_DENIED)
        )
        return OffsetCommitResponse(topics=errors)
    allowed, errors = yield from _checked(guard, AclOperation.READ, request.topics, call, error_of)
    if not errors:
        return call.proceed(request)
    return with_errors(call, request, {"topics": allowed}, "topics", errors)


def _checked(
    guard: Guard,
    operation: AclOperation,
    topics: tuple[T, ...],
    call: Call,
    error_of: Callable[[T, ErrorCode], Turns[Any]],
) -> Turns[tuple[tuple[T, ...], tuple[Any, ...]]]:
    """Return the topics that the client may use, and the errors of the others. The coordinator does
    not get topics whose names are unknown: it may hold the request, and know them later."""

    def name_of(topic: T) -> str | None:
        return topic_name(call.image, topic.name, topic.topic_id)

    allowed, denied = yield from split(guard, operation, TOPIC, topics, name_of)
    errors = yield from nested(guard.pace, denied, lambda topic: error_of(topic, TOPIC_DENIED))
    unknown = yield from kept(guard.pace, allowed, lambda topic: name_of(topic) is None)
    if not unknown:
        return allowed, errors
    errors += yield from nested(
        guard.pace, unknown, lambda topic: error_of(topic, ErrorCode.UNKNOWN_TOPIC_ID)
    )
    known = yield from kept(guard.pace, allowed, lambda topic: name_of(topic) is not None)
    return known, errors


def offset_delete(guard: Guard, request: OffsetDeleteRequest, call: Call) -> Any:
    """DELETE on the group, and READ on the topics."""
    if not guard.allows(AclOperation.DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=GROUP_DENIED)
    return by_topic(
        guard,
        AclOperation.READ,
        request,
        call,
        lambda topic: topic_error(guard, topic, OffsetDeleteResponse),
    )


def offset_fetch(guard: Guard, request: OffsetFetchRequest, call: Call) -> Any:
    """DESCRIBE on the groups and on the topics. Of all offsets of a group the client gets those of
    topics that it may describe."""
    if guard.version >= _BATCHED_OFFSETS_SINCE:
        return _offset_fetch_groups(guard, request, call)
    return _offset_fetch_group(guard, request, call)


def _offset_fetch_group(guard: Guard, request: OffsetFetchRequest, call: Call) -> Turns[Any]:
    topic_response = OffsetFetchResponse.Topic

    def error_of(topic: OffsetFetchRequest.Topic, code: ErrorCode) -> Turns[Any]:
        partitions = yield from each(
            guard.pace,
            topic.partition_indexes,
            lambda index: topic_response.Partition(
                partition_index=index, committed_offset=UNKNOWN_OFFSET, metadata="", error_code=code
            ),
        )
        return topic_response(name=topic.name, partitions=partitions)

    if not guard.allows(AclOperation.DESCRIBE, GROUP, request.group_id):
        if guard.version >= _GROUP_ERROR_SINCE:
            return OffsetFetchResponse(error_code=GROUP_DENIED)
        errors = yield from nested(
            guard.pace, request.topics or (), lambda topic: error_of(topic, GROUP_DENIED)
        )
        return OffsetFetchResponse(topics=errors)
    if request.topics is None:

        def describable(response: OffsetFetchResponse) -> Turns[OffsetFetchResponse]:
            topics = yield from kept(
                guard.pace,
                response.topics,
                lambda topic: guard.allows(
                    AclOperation.DESCRIBE, TOPIC, topic.name, is_filter=True
                ),
            )
            return changed(response, topics=topics)

        return then(call.proceed(request), describable)
    allowed, denied = yield from split(
        guard, AclOperation.DESCRIBE, TOPIC, request.topics, lambda topic: topic.name
    )
    if not denied:
        return call.proceed(request)
    errors = yield from nested(guard.pace, denied, lambda topic: error_of(topic, TOPIC_DENIED))
    # The coordinator is asked also if no topic is left: it may answer with an error of the group.
    return then(
        call.proceed(changed(request, topics=allowed)),
        lambda response: (
            response if response.error_code else changed(response, topics=response.topics + errors)
        ),
    )


def _offset_fetch_groups(guard: Guard, request: OffsetFetchRequest, call: Call) -> Turns[Any]:
    group_response = OffsetFetchResponse.Group
    topic_response = group_response.Topic

    def error_of(topic: OffsetFetchRequest.Group.Topic, code: ErrorCode) -> Turns[Any]:
        partitions = yield from each(
            guard.pace,
            topic.partition_indexes,
            lambda index: topic_response.Partition(
                partition_index=index, committed_offset=UNKNOWN_OFFSET, metadata="", error_code=code
            ),
        )
        return topic_response(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

    allowed: list[OffsetFetchRequest.Group] = []
    denied_groups: list[OffsetFetchResponse.Group] = []
    # The errors of each allowed group, or None if it asks for all topics.
    errors: list[tuple[Any, ...] | None] = []
    for group in request.groups:
        if not guard.allows(AclOperation.DESCRIBE, GROUP, group.group_id):
            denied_groups.append(group_response(group_id=group.group_id, error_code=GROUP_DENIED))
        elif group.topics is None:
            allowed.append(group)
            errors.append(None)
        else:
            topics, of_group = yield from _checked(
                guard, AclOperation.DESCRIBE, group.topics, call, error_of
            )
            allowed.append(changed(group, topics=topics) if of_group else group)
            errors.append(of_group)
        if guard.pace.is_over():
            yield
    if not allowed:
        return OffsetFetchResponse(groups=tuple(denied_groups))

    def may_describe(topic: OffsetFetchResponse.Group.Topic) -> bool:
        name = topic_name(call.image, topic.name, topic.topic_id)
        return name is not None and guard.allows(AclOperation.DESCRIBE, TOPIC, name, is_filter=True)

    def checked(pair: tuple[OffsetFetchResponse.Group, tuple[Any, ...] | None]) -> Turns[Any]:
        group, added = pair
        if group.error_code or added == ():
            return group
        if added is not None:
            return changed(group, topics=group.topics + added)
        return changed(group, topics=(yield from kept(guard.pace, group.topics, may_describe)))

    def respond(response: OffsetFetchResponse) -> Turns[OffsetFetchResponse]:
        pairs = zip(response.groups, errors, strict=False)
        groups = yield from nested(guard.pace, pairs, checked)
        return changed(response, groups=(*groups, *denied_groups))

    return then(call.proceed(changed(request, groups=tuple(allowed))), respond)
