"""ConsumerGroupHeartbeat: a member joins, stays alive, changes its subscription, revokes and gets
partitions, and leaves (KIP-848). PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.consumer.assignment import Rights
from penstock.coordinator.consumer.checks import (
    check_epoch,
    check_released,
    check_request,
    check_room,
    existing_member,
)
from penstock.coordinator.consumer.group import JOIN_EPOCH, ConsumerGroup, ConsumerMember
from penstock.coordinator.consumer.leaving import leave
from penstock.coordinator.consumer.migration import upgrade
from penstock.coordinator.consumer.reconcile import advance, replace_static
from penstock.coordinator.consumer.timeouts import (
    REJOIN,
    SYNC,
    cancel_deadlines,
    heartbeat_interval_ms,
)
from penstock.coordinator.groups.step import GroupStep
from penstock.coordinator.groups.table import Caller
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import uuid_text
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

Response = ConsumerGroupHeartbeatResponse


def heartbeat(step: GroupStep, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Response:
    """KafkaError refuses the request."""
    check_request(request, caller.version, step.groups)
    if request.member_epoch < JOIN_EPOCH:
        group = step.groups.by_id.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise _not_found(request.group_id)
        return leave(step, group, request)
    owned = _owned(request)
    group = _group(step, request)
    member_id = request.member_id or uuid_text(step.groups.new_uuid())
    member = _member(step, group, request, member_id, owned)
    before = group.members.get(member_id)
    if member.classic is not None:
        # From now on the member uses the consumer protocol.
        cancel_deadlines(step, group.id, member_id, (REJOIN, SYNC))
    updated = _updated(member, request, caller)
    after = advance(step, group, updated, owned, _rights(step, updated, caller))
    changed = before is None or before.assigned != after.assigned
    return Response(
        member_id=member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(step.groups, group, after),
        assignment=_assignment(after) if changed or _is_full(request) else None,
    )


def _rights(step: GroupStep, member: ConsumerMember, caller: Caller) -> Rights | None:
    if not member.regex or not step.groups.settings.has_authorizer or caller.may_describe is None:
        return None
    return Rights(member.id, member.regex, caller.may_describe)


def says_nothing_new(request: ConsumerGroupHeartbeatRequest, response: Response) -> bool:
    """Return True if the response tells the member nothing that it does not know."""
    return (
        not response.error_code
        and response.member_epoch == request.member_epoch
        and response.assignment is None
    )


def _not_found(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def _group(step: GroupStep, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
    """Return the group. A member that joins may create it, or upgrade a classic one."""
    groups, group_id = step.groups, request.group_id
    known = groups.by_id.get(group_id)
    if isinstance(known, ConsumerGroup):
        check_room(len(known.members), request.member_id in known.members, groups.settings)
        return known
    if request.member_epoch != JOIN_EPOCH:
        raise _not_found(group_id)
    check_room(0, is_member=False, settings=groups.settings)
    if isinstance(known, ClassicGroup) and known.members:
        return upgrade(step, known)
    if known is not None:
        step.delete(*known.tombstone_keys())
    step.save_group(group_id)
    created = groups.by_id[group_id] = ConsumerGroup(group_id)
    return created


def _member(
    step: GroupStep,
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    owned: Mapping[UUID, frozenset[int]] | None,
) -> ConsumerMember:
    """Return the known member, or a new one."""
    if request.member_epoch != JOIN_EPOCH:
        member = existing_member(group, member_id, request.instance_id)
        check_epoch(member, request.member_epoch, owned)
        return member
    former = group.static_member(request.instance_id)
    if former is None:
        return group.members.get(member_id, ConsumerMember(member_id))
    if former.classic is None:
        check_released(former, member_id)
    return replace_static(step, group, former, member_id)


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMember:
    """Return the member with the fields that the request sets. Most requests set none, so that case
    must be fast."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    fields = request.rack_id, request.rebalance_timeout_ms, names, regex, request.server_assignor
    is_same_client = member.classic is None and (member.client_id, member.client_host) == (
        caller.client_id,
        caller.client_host,
    )
    if (
        is_same_client
        and fields == (None, -1, None, None, None)
        and request.instance_id in (None, member.instance_id)
    ):
        return member
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack=member.rack if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if regex is None else regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> dict[UUID, frozenset[int]] | None:
    if request.topic_partitions is None:
        return None
    owned: dict[UUID, frozenset[int]] = {}
    for topic in request.topic_partitions:
        owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return True for a request with all fields, as after an error. Its response has them too."""
    subscribes = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
    )


def _assignment(member: ConsumerMember) -> Response.Assignment:
    return Response.Assignment(
        topic_partitions=tuple(
            Response.Assignment.TopicPartition(topic_id=topic, partitions=tuple(sorted(partitions)))
            for topic, partitions in sorted(member.assigned.items(), key=lambda item: item[0].int)
        )
    )
