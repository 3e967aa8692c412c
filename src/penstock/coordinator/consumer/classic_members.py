"""Members that speak the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and
LeaveGroup (KIP-848's migration). PURE.

Nobody waits for anybody: a member that joins gets its epoch as generation at once, and by SyncGroup
what it may have by now. Heartbeats tell it to join again as long as there is more for it to give up
or to get. There is no leader; the coordinator assigns.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.coordinator.classic.group import CONSUMER_PROTOCOL_TYPE
from penstock.coordinator.classic.member import Protocol
from penstock.coordinator.classic.responses import join_refused, sync_refused
from penstock.coordinator.consumer.advance import advance, replace_static
from penstock.coordinator.consumer.checks import check_room, existing_member
from penstock.coordinator.consumer.deadlines import expect_rejoin, expect_sync, keep_session, synced
from penstock.coordinator.consumer.embedded import (
    assignment_bytes,
    owned_partitions,
    read_subscription,
)
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.leave import remove_members
from penstock.coordinator.consumer.member import ClassicSide, ConsumerMember, MemberState
from penstock.coordinator.consumer.migration import downgrade, may_downgrade
from penstock.coordinator.consumer.subscription import refresh
from penstock.coordinator.consumer.target import update_target
from penstock.coordinator.groups.table import Groups
from penstock.coordinator.runtime.step import Caller, Step, Ticket
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import ErrorCode, KafkaError, ProtocolError, invariant
from penstock.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# KIP-394: a new member first gets its id. And from the other version on LeaveGroup names many
# members.
_MEMBER_ID_REQUIRED_VERSION = 4
_BATCHED_LEAVE_VERSION = 3


def join(
    groups: Groups, request: JoinGroupRequest, caller: Caller, ticket: Ticket, now_ms: int
) -> Step:
    turn = Turn(groups, now_ms, caller.wall_ms)
    try:
        response = _join(turn, _group(groups, request.group_id), request, caller)
    except KafkaError as error:
        invariant(
            not turn.records,
            (
                f"a member of group {request.group_id} was refused after it had changed something: "
                f"{error}"
            ),
        )
        response = join_refused(error.code, request.member_id, caller.version)
    turn.answer(ticket, response)
    return turn.step()


def _join(
    turn: Turn, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller
) -> JoinGroupResponse:
    member_id = request.member_id or f"{caller.client_id}-{turn.groups.new_uuid()}"
    check_room(len(group.members), member_id in group.members, turn.groups.settings)
    protocols = tuple(Protocol(protocol.name, protocol.metadata) for protocol in request.protocols)
    subscription = _subscription(group, request.protocol_type, protocols)
    if (
        not request.member_id
        and request.group_instance_id is None
        and caller.version >= _MEMBER_ID_REQUIRED_VERSION
    ):
        return join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id, caller.version)
    member = _joining_member(turn, group, request, member_id)
    updated = replace(
        member,
        instance_id=member.instance_id
        if request.group_instance_id is None
        else request.group_instance_id,
        rack=subscription.rack_id or member.rack,
        rebalance_timeout_ms=request.session_timeout_ms
        if caller.version == 0
        else request.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicSide(request.session_timeout_ms, protocols),
    )
    after = advance(turn, group, updated, owned_partitions(subscription, turn.groups.image))
    expect_sync(turn.groups, group, after, turn.now_ms)
    if may_downgrade(turn.groups, group, ()):
        # It took the place of the last member that spoke the consumer protocol.
        downgrade(
            turn,
            group,
            (),
            f"{member_id} speaks the classic protocol now",
            rebalances=not group.is_settled,
        )
    return JoinGroupResponse(
        member_id=member_id,
        generation_id=after.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocols[0].name,
        leader="",
    )


def _subscription(
    group: ConsumerGroup, protocol_type: str, protocols: tuple[Protocol, ...]
) -> ConsumerProtocolSubscription:
    """All protocols of a consumer have the same. Classic members must have one in common: the group
    may become a classic one again."""
    known = [
        {name for name, _ in member.classic.protocols}
        for member in group.members.values()
        if member.classic is not None
    ]
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
        all(name in names for names in known) for name, _ in protocols
    ):
        why = f"the classic members of group {group.id} share no protocol with the new one"
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why)
    try:
        return read_subscription(protocols[0].metadata)
    except ProtocolError as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription cannot be read: {error}"
        ) from None


def _joining_member(
    turn: Turn, group: ConsumerGroup, request: JoinGroupRequest, member_id: str
) -> ConsumerMember:
    instance_id = request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id, ConsumerMember(member_id))
    if request.member_id:
        return existing_member(group, member_id, instance_id)
    former = group.static_member(instance_id)
    return (
        ConsumerMember(member_id)
        if former is None
        else replace_static(turn, group, former, member_id)
    )


def sync(
    groups: Groups, request: SyncGroupRequest, caller: Caller, ticket: Ticket, now_ms: int
) -> Step:
    turn = Turn(groups, now_ms, caller.wall_ms)
    try:
        response = _sync(turn, _group(groups, request.group_id), request)
    except KafkaError as error:
        response = sync_refused(error.code)
    turn.answer(ticket, response)
    return turn.step()


def _sync(turn: Turn, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
    member, side = _classic_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        side.protocol.name,
    ):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"member {member.id} was told to use {side.protocol.name}",
        )
    if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        expect_rejoin(turn.groups, group, member, turn.now_ms)
        raise KafkaError(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"member {member.id} must join again to come into epoch {group.target_epoch}",
        )
    synced(turn.groups, group, member)
    keep_session(turn.groups, group, member, turn.now_ms)
    assignment = assignment_bytes(member.assigned, side.protocol.metadata, turn.groups.image)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment,
    )


def heartbeat(
    groups: Groups, request: HeartbeatRequest, caller: Caller, ticket: Ticket, now_ms: int
) -> Step:
    turn = Turn(groups, now_ms, caller.wall_ms)
    try:
        code = _heartbeat(turn, _group(groups, request.group_id), request)
    except KafkaError as error:
        code = error.code
    turn.answer(ticket, HeartbeatResponse(error_code=code))
    # Whoever joins again for nothing loses nothing.
    return turn.step(at_once=True)


def _heartbeat(turn: Turn, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
    member, _ = _classic_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    keep_session(turn.groups, group, member, turn.now_ms)
    # There may be nobody left who speaks the consumer protocol and would do this.
    refresh(turn, group, None)
    update_target(turn, group)
    has_to_give_up = member.state is MemberState.UNREVOKED_PARTITIONS
    may_get_more = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(
        member
    )
    if member.epoch >= group.target_epoch and not has_to_give_up and not may_get_more:
        return ErrorCode.NONE
    expect_rejoin(turn.groups, group, member, turn.now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS


def leave(
    groups: Groups, request: LeaveGroupRequest, caller: Caller, ticket: Ticket, now_ms: int
) -> Step:
    turn = Turn(groups, now_ms, caller.wall_ms)
    group = _group(groups, request.group_id)
    if caller.version >= _BATCHED_LEAVE_VERSION:
        turn.answer(ticket, LeaveGroupResponse(members=_leave(turn, group, request.members)))
    else:
        (only,) = _leave(turn, group, (LeaveGroupRequest.Member(member_id=request.member_id),))
        turn.answer(ticket, LeaveGroupResponse(error_code=only.error_code))
    return turn.step()


def _leave(
    turn: Turn, group: ConsumerGroup, leaving: tuple[LeaveGroupRequest.Member, ...]
) -> tuple[LeaveGroupResponse.Member, ...]:
    gone: dict[str, ConsumerMember] = {}
    answers = []
    for one in leaving:
        code, member_id = ErrorCode.NONE, one.member_id
        try:
            member = _leaving_member(group, one)
            if member.id in gone:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"member {member.id} has left already"
                )
            member_id = member.id
            gone[member_id] = member
        except KafkaError as error:
            code = error.code
        answers.append(
            LeaveGroupResponse.Member(
                member_id=member_id, group_instance_id=one.group_instance_id, error_code=code
            )
        )
    if gone:
        remove_members(turn, group, list(gone.values()), f"{', '.join(gone)} left")
    return tuple(answers)


def _leaving_member(group: ConsumerGroup, leaving: LeaveGroupRequest.Member) -> ConsumerMember:
    static = group.static_member(leaving.group_instance_id)
    # An administrator names the instance alone.
    member_id = static.id if static is not None and not leaving.member_id else leaving.member_id
    member = existing_member(group, member_id, leaving.group_instance_id)
    _side(member)
    return member


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicSide]:
    member = existing_member(group, member_id, instance_id)
    side = _side(member)
    if generation != member.epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {generation} is not the epoch {member.epoch} of member {member_id}",
        )
    return member, side


def _side(member: ConsumerMember) -> ClassicSide:
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.id} does not use the classic protocol."
        )
    return member.classic


def _group(groups: Groups, group_id: str) -> ConsumerGroup:
    group = groups.by_id.get(group_id)
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
    return group
