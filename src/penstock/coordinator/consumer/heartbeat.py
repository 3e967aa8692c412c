"""ConsumerGroupHeartbeat: a member joins, lives, changes what it wants, gives up and gets
partitions, and leaves (KIP-848). PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.consumer.advance import advance, replace_static
from penstock.coordinator.consumer.checks import (
    check_epoch,
    check_released,
    check_request,
    check_room,
    existing_member,
)
from penstock.coordinator.consumer.deadlines import REJOIN, SYNC
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.leave import leave
from penstock.coordinator.consumer.member import JOINING, ConsumerMember
from penstock.coordinator.consumer.migration import upgrade
from penstock.coordinator.consumer.settings import heartbeat_interval_ms
from penstock.coordinator.groups.table import Groups
from penstock.coordinator.runtime.step import Caller, Step, Ticket
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import ErrorCode, KafkaError, invariant
from penstock.ids import uuid_text
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

Response = ConsumerGroupHeartbeatResponse


def decide(
    groups: Groups,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    ticket: Ticket,
    now_ms: int,
) -> Step:
    turn = Turn(groups, now_ms, caller.wall_ms)
    try:
        check_request(request, caller.version, groups)
        response = (
            _heartbeat(turn, request, caller)
            if request.member_epoch >= JOINING
            else _leave(turn, request)
        )
    except KafkaError as error:
        invariant(
            not turn.records,
            (
                f"a heartbeat of group {request.group_id} was refused after it had changed "
                "something: "
                f"{error}"
            ),
        )
        response = Response(error_code=error.code, error_message=error.message, assignment=None)
    turn.answer(ticket, response)
    says_nothing_new = (
        not turn.records
        and response.member_epoch == request.member_epoch
        and response.assignment is None
    )
    return turn.step(at_once=says_nothing_new and not response.error_code)


def _leave(turn: Turn, request: ConsumerGroupHeartbeatRequest) -> Response:
    group = turn.groups.by_id.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found."
        )
    return leave(turn, group, request)


def _heartbeat(turn: Turn, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Response:
    owned = _owned(request)
    group = _group(turn, request)
    member_id = request.member_id or uuid_text(turn.groups.new_uuid())
    member = _member(turn, group, request, member_id, owned)
    before = group.members.get(member_id)
    if member.classic is not None:
        # It speaks the consumer protocol from now on.
        for kind in (REJOIN, SYNC):
            turn.groups.consumer_deadlines.cancel((kind, group.id, member_id))
    after = advance(turn, group, _updated(member, request, caller), owned)
    changed = before is None or before.assigned != after.assigned
    return Response(
        member_id=member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(turn.groups, group, after),
        assignment=_assignment(after) if changed or _is_full(request) else None,
    )


def _group(turn: Turn, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
    """Who joins may found a group, or bring a classic one over to the consumer protocol."""
    groups, group_id = turn.groups, request.group_id
    known = groups.by_id.get(group_id)
    if isinstance(known, ConsumerGroup):
        check_room(len(known.members), request.member_id in known.members, groups.settings)
        return known
    if request.member_epoch != JOINING:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    check_room(0, is_member=False, settings=groups.settings)
    if isinstance(known, ClassicGroup) and known.members:
        return upgrade(turn, known)
    if known is not None:
        turn.write(*known.tombstones())
    founded = groups.by_id[group_id] = ConsumerGroup(group_id)
    return founded


def _member(
    turn: Turn,
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    owned: Mapping[UUID, frozenset[int]] | None,
) -> ConsumerMember:
    """As it is known, or new."""
    if request.member_epoch != JOINING:
        member = existing_member(group, member_id, request.instance_id)
        check_epoch(member, request.member_epoch, owned)
        return member
    former = group.static_member(request.instance_id)
    if former is None:
        return group.members.get(member_id, ConsumerMember(member_id))
    if former.classic is None:
        check_released(former, member_id)
    return replace_static(turn, group, former, member_id)


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMember:
    """What a request leaves out stays as it was. Most leave out everything, so that must be
    quick."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    said = request.rack_id, request.rebalance_timeout_ms, names, regex, request.server_assignor
    is_as_before = member.classic is None and (member.client_id, member.client_host) == (
        caller.client_id,
        caller.client_host,
    )
    if (
        is_as_before
        and said == (None, -1, None, None, None)
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
    """Who says all of itself, as after an error, is told all."""
    subscribes = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return request.member_epoch == JOINING or (
        request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
    )


def _assignment(member: ConsumerMember) -> Response.Assignment:
    return Response.Assignment(
        topic_partitions=tuple(
            Response.Assignment.TopicPartition(topic_id=topic, partitions=tuple(sorted(partitions)))
            for topic, partitions in sorted(member.assigned.items(), key=lambda item: item[0].int)
        )
    )
