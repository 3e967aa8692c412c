"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and
LeaveGroup (KIP-848's migration). PURE.

No request waits for other members. JoinGroup returns the member's epoch as generation, and
SyncGroup the partitions that it may have by now. Heartbeats tell the member to rejoin while it has
partitions to revoke or to get. There is no leader; the coordinator assigns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.coordinator.classic.group import CONSUMER_PROTOCOL_TYPE, Protocol
from penstock.coordinator.classic.responses import join_error, sync_error
from penstock.coordinator.consumer.assignment import refresh_subscription, update_target
from penstock.coordinator.consumer.checks import check_room, existing_member
from penstock.coordinator.consumer.embedded import (
    assignment_bytes,
    owned_partitions,
    read_subscription,
)
from penstock.coordinator.consumer.group import (
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from penstock.coordinator.consumer.leaving import remove_members
from penstock.coordinator.consumer.migration import downgrade, may_downgrade
from penstock.coordinator.consumer.reconcile import advance, replace_static
from penstock.coordinator.consumer.timeouts import (
    SYNC,
    cancel_deadlines,
    expect_rejoin,
    expect_sync,
    extend_session,
)
from penstock.coordinator.groups.step import GroupStep
from penstock.coordinator.groups.table import Caller
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# KIP-394: from this version on a new member first gets its id.
_MEMBER_ID_REQUIRED_VERSION = 4


def join(
    step: GroupStep, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller
) -> JoinGroupResponse:
    """KafkaError refuses the request."""
    member_id = request.member_id or f"{caller.client_id}-{step.groups.new_uuid()}"
    check_room(len(group.members), member_id in group.members, step.groups.settings)
    protocols = tuple(Protocol(protocol.name, protocol.metadata) for protocol in request.protocols)
    subscription = _subscription(group, request.protocol_type, protocols)
    if (
        not request.member_id
        and request.group_instance_id is None
        and caller.version >= _MEMBER_ID_REQUIRED_VERSION
    ):
        return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id, caller.version)
    member = _joining_member(step, group, request, member_id)
    updated = replace(
        member,
        instance_id=member.instance_id
        if request.group_instance_id is None
        else request.group_instance_id,
        rack=subscription.rack_id or member.rack,
        rebalance_timeout_ms=request.session_timeout_ms
        if caller.version == 0
        else request.rebalance_timeout_ms,
        topics=_describable(subscription.topics, caller),
        regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicSide(request.session_timeout_ms, protocols),
    )
    after = advance(step, group, updated, owned_partitions(subscription, step.groups.image))
    expect_sync(step, group, after)
    if may_downgrade(step.groups, group, ()):
        # The member replaced the last member of the consumer protocol.
        reason = f"{member_id} uses the classic protocol now"
        downgrade(step, group, (), reason, rebalances=not group.is_settled)
    return JoinGroupResponse(
        member_id=member_id,
        generation_id=after.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocols[0].name,
        leader="",
    )


def _describable(topics: Iterable[str], caller: Caller) -> frozenset[str]:
    """Return the topics that the client may describe. The coordinator assigns only topics that
    exist, so that the assignment would reveal which of the others do."""
    if caller.may_describe is None:
        return frozenset(topics)
    return frozenset(filter(caller.may_describe, topics))


def _subscription(
    group: ConsumerGroup, protocol_type: str, protocols: tuple[Protocol, ...]
) -> ConsumerProtocolSubscription:
    """Return the subscription, which is the same in all protocols of a consumer. Classic members
    must have a protocol in common: the group may become a classic one again."""
    known = [
        {name for name, _ in member.classic.protocols}
        for member in group.members.values()
        if member.classic is not None
    ]
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
        all(name in names for names in known) for name, _ in protocols
    ):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the classic members of group {group.id} share no protocol with the new one",
        )
    try:
        return read_subscription(protocols[0].metadata)
    except ProtocolError as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription is malformed: {error}"
        ) from None


def _joining_member(
    step: GroupStep, group: ConsumerGroup, request: JoinGroupRequest, member_id: str
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
        else replace_static(step, group, former, member_id)
    )


def sync(step: GroupStep, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
    """KafkaError refuses the request."""
    member, side = _classic_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        side.protocol.name,
    ):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"member {member.id} must use protocol {side.protocol.name}",
        )
    if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        expect_rejoin(step, group, member)
        return sync_error(ErrorCode.REBALANCE_IN_PROGRESS)
    cancel_deadlines(step, group.id, member.id, (SYNC,))
    extend_session(step, group, member)
    assignment = assignment_bytes(member.assigned, side.protocol.metadata, step.groups.image)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment,
    )


def heartbeat(step: GroupStep, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
    """Extend the session and tell the member whether to rejoin. KafkaError refuses the request."""
    member, _ = _classic_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    extend_session(step, group, member)
    # There may be no member of the consumer protocol left whose heartbeats would do this.
    refresh_subscription(step, group, None)
    update_target(step, group)
    must_revoke = member.state is MemberState.UNREVOKED_PARTITIONS
    may_get_more = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(
        member
    )
    if member.epoch >= group.target_epoch and not must_revoke and not may_get_more:
        return ErrorCode.NONE
    expect_rejoin(step, group, member)
    return ErrorCode.REBALANCE_IN_PROGRESS


def leave(
    step: GroupStep, group: ConsumerGroup, members: tuple[LeaveGroupRequest.Member, ...]
) -> tuple[LeaveGroupResponse.Member, ...]:
    """Remove members, with one group epoch for all."""
    removed: dict[str, ConsumerMember] = {}
    results = []
    for leaving in members:
        code, member_id = ErrorCode.NONE, leaving.member_id
        try:
            member = _leaving_member(group, leaving)
            if member.id in removed:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"member {member.id} has left already"
                )
            member_id = member.id
            removed[member_id] = member
        except KafkaError as error:
            code = error.code
        results.append(
            LeaveGroupResponse.Member(
                member_id=member_id, group_instance_id=leaving.group_instance_id, error_code=code
            )
        )
    if removed:
        remove_members(step, group, list(removed.values()), f"{', '.join(removed)} left")
    return tuple(results)


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
