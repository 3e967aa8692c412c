"""The checks of requests about groups and their members."""

from __future__ import annotations

from typing import Any

from penstock.handlers.authorization.calls import (
    CLUSTER_DENIED,
    FAILED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTIONAL_ID_DENIED,
    Call,
    each,
    kept,
    nested,
    split,
    then,
    with_errors,
)
from penstock.handlers.authorization.guard import Guard
from penstock.handlers.find_coordinator import GROUP_KEY, TRANSACTION_KEY
from penstock.handlers.turns import Turns
from penstock.protocol.apis import response_class
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.schema import changed
from penstock.security.acls import AclOperation, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP

_NULL_PROTOCOL_SINCE = 7
_BATCHED_COORDINATORS_SINCE = 4
_UNDESCRIBED = "The group has described topic(s) that the client is not authorized to describe."


def find_coordinator(guard: Guard, request: FindCoordinatorRequest, call: Call) -> Turns[Any]:
    """DESCRIBE on the group or the transactional id; CLUSTER_ACTION for coordinators of share
    groups, which only brokers look for."""
    is_batched = guard.version >= _BATCHED_COORDINATORS_SINCE
    keys = request.coordinator_keys if is_batched else (request.key,)
    if request.key_type == GROUP_KEY:
        resource_type, code = GROUP, GROUP_DENIED
    elif request.key_type == TRANSACTION_KEY:
        resource_type, code = ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID_DENIED
    elif guard.allows_cluster(AclOperation.CLUSTER_ACTION):
        return call.proceed(request)
    else:
        resource_type, code = None, CLUSTER_DENIED
    allowed, denied = keys[:0], keys
    if resource_type is not None:
        allowed, denied = yield from split(
            guard, AclOperation.DESCRIBE, resource_type, keys, lambda key: key
        )
    if resource_type is not None and not denied:
        return call.proceed(request)
    message = next(error.message for error in FAILED.values() if error.code is code)
    if not is_batched:
        return FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=-1, host="", port=-1
        )
    errors = yield from each(
        guard.pace,
        denied,
        lambda key: FindCoordinatorResponse.Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
        ),
    )
    return with_errors(call, request, {"coordinator_keys": allowed}, "coordinators", errors)


# Membership


def join_group(guard: Guard, request: JoinGroupRequest, call: Call) -> Any:
    """READ on the group."""
    if guard.allows(AclOperation.READ, GROUP, request.group_id):
        return call.proceed(request)
    name = None if guard.version >= _NULL_PROTOCOL_SINCE else ""
    return JoinGroupResponse(error_code=GROUP_DENIED, protocol_name=name)


def of_member(guard: Guard, request: Any, call: Call) -> Any:
    """Heartbeat, LeaveGroup and SyncGroup: READ on the group."""
    if guard.allows(AclOperation.READ, GROUP, request.group_id):
        return call.proceed(request)
    return response_class(call.api_key)(error_code=GROUP_DENIED)


def consumer_group_heartbeat(
    guard: Guard, request: ConsumerGroupHeartbeatRequest, call: Call
) -> Turns[Any]:
    """READ on the group, and DESCRIBE on the topics of the subscription.

    The coordinator matches an expression with the topics that the client may describe. Members with
    other rights may have the same expression: the client does not get their topics.
    """
    if not guard.allows(AclOperation.READ, GROUP, request.group_id):
        return ConsumerGroupHeartbeatResponse(
            error_code=GROUP_DENIED, error_message=FAILED[GROUP].message
        )
    names = set(request.subscribed_topic_names or ())
    _allowed, denied = yield from split(
        guard, AclOperation.DESCRIBE, TOPIC, sorted(names), lambda name: name
    )
    if denied:
        return ConsumerGroupHeartbeatResponse(
            error_code=TOPIC_DENIED, error_message=FAILED[TOPIC].message
        )

    def may_describe(topic: Any) -> bool:
        name = call.image.topic_names.get(topic.topic_id)
        return name is None or guard.allows(AclOperation.DESCRIBE, TOPIC, name, is_filter=True)

    def describable(
        response: ConsumerGroupHeartbeatResponse,
    ) -> Turns[ConsumerGroupHeartbeatResponse]:
        if response.assignment is None:
            return response
        topics = yield from kept(guard.pace, response.assignment.topic_partitions, may_describe)
        if len(topics) == len(response.assignment.topic_partitions):
            return response
        return changed(response, assignment=changed(response.assignment, topic_partitions=topics))

    return then(call.proceed(request), describable)


# Descriptions


def describe_groups(guard: Guard, request: DescribeGroupsRequest, call: Call) -> Turns[Any]:
    """DESCRIBE on the groups."""
    allowed, denied = yield from split(
        guard, AclOperation.DESCRIBE, GROUP, request.groups, lambda group: group
    )
    if not denied:
        return call.proceed(request)
    errors = yield from each(
        guard.pace,
        denied,
        lambda group: DescribeGroupsResponse.Group(group_id=group, error_code=GROUP_DENIED),
    )
    return with_errors(call, request, {"groups": allowed}, "groups", errors)


def consumer_group_describe(
    guard: Guard, request: ConsumerGroupDescribeRequest, call: Call
) -> Turns[Any]:
    """DESCRIBE on the groups, and on all topics that their members have."""
    group_response = ConsumerGroupDescribeResponse.Group
    allowed, denied = yield from split(
        guard, AclOperation.DESCRIBE, GROUP, request.group_ids, lambda group: group
    )
    errors = yield from each(
        guard.pace,
        denied,
        lambda group: group_response(group_id=group, error_code=GROUP_DENIED),
    )
    if not allowed:
        return ConsumerGroupDescribeResponse(groups=errors)

    def described(group: ConsumerGroupDescribeResponse.Group) -> Turns[Any]:
        names = {
            topic.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        }
        for name in sorted(names):
            if not guard.allows(AclOperation.DESCRIBE, TOPIC, name):
                return group_response(
                    group_id=group.group_id, error_code=TOPIC_DENIED, error_message=_UNDESCRIBED
                )
            if guard.pace.is_over():
                yield
        return group

    def convert(response: ConsumerGroupDescribeResponse) -> Turns[ConsumerGroupDescribeResponse]:
        groups = yield from nested(guard.pace, response.groups, described)
        return changed(response, groups=groups + errors)

    return then(call.proceed(changed(request, group_ids=allowed) if errors else request), convert)


def list_groups(guard: Guard, request: ListGroupsRequest, call: Call) -> Any:
    """All groups with DESCRIBE on the cluster, otherwise those that the client may describe."""
    if guard.allows_cluster(AclOperation.DESCRIBE, is_filter=True):
        return call.proceed(request)

    def convert(response: ListGroupsResponse) -> Turns[ListGroupsResponse]:
        groups = yield from kept(
            guard.pace,
            response.groups,
            lambda group: guard.allows(
                AclOperation.DESCRIBE, GROUP, group.group_id, is_filter=True
            ),
        )
        return changed(response, groups=groups)

    return then(call.proceed(request), convert)


def delete_groups(guard: Guard, request: DeleteGroupsRequest, call: Call) -> Turns[Any]:
    """DELETE on the groups."""
    allowed, denied = yield from split(
        guard, AclOperation.DELETE, GROUP, request.groups_names, lambda group: group
    )
    if not denied:
        return call.proceed(request)
    errors = yield from each(
        guard.pace,
        dict.fromkeys(denied),
        lambda group: DeleteGroupsResponse.Result(group_id=group, error_code=GROUP_DENIED),
    )
    return with_errors(call, request, {"groups_names": allowed}, "results", errors)
