"""Responses to members of classic groups, and parked requests. PURE."""

from __future__ import annotations

from dataclasses import replace

from penstock.coordinator.classic.group import ClassicGroup, ClassicMember, Parked
from penstock.coordinator.groups.step import GroupStep
from penstock.errors import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse

# Before this version the protocol name may not be null.
_NULLABLE_PROTOCOL_VERSION = 7
# KIP-814: from this version on the response can tell the leader not to assign.
_SKIP_ASSIGNMENT_VERSION = 9


def join_error(code: ErrorCode, member_id: str, version: int) -> JoinGroupResponse:
    protocol = None if version >= _NULLABLE_PROTOCOL_VERSION else ""
    return JoinGroupResponse(error_code=code, protocol_name=protocol, member_id=member_id)


def join_response(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """The leader gets the list of all members, since it assigns."""
    return _join_response(group, member_id, group.leader_id, skip_assignment=False)


def static_rejoin_response(
    group: ClassicGroup, member_id: str, former_leader_id: str | None, version: int
) -> JoinGroupResponse:
    """A static member under a new id need not assign even if it leads.

    A version that cannot say so gets the leader's former id, so that the member does not take
    itself for the leader.
    """
    can_skip = version >= _SKIP_ASSIGNMENT_VERSION
    return _join_response(
        group, member_id, group.leader_id if can_skip else former_leader_id, skip_assignment=True
    )


def _join_response(
    group: ClassicGroup, member_id: str, leader_id: str | None, skip_assignment: bool
) -> JoinGroupResponse:
    is_leader = member_id == leader_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=leader_id or "",
        skip_assignment=skip_assignment and is_leader,
        member_id=member_id,
        members=_all_members(group) if is_leader else (),
    )


def _all_members(group: ClassicGroup) -> tuple[JoinGroupResponse.Member, ...]:
    return tuple(
        JoinGroupResponse.Member(
            member_id=member.id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol),
        )
        for member in group.members.values()
    )


def sync_response(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def park_join(step: GroupStep, group: ClassicGroup, member_id: str, parked: Parked) -> None:
    """Park a JoinGroup. A client that retries has given up its first request, which must get a
    response too."""
    refuse_join(step, group, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    group.put(replace(group.members[member_id], joining=parked))


def park_sync(step: GroupStep, group: ClassicGroup, member_id: str, parked: Parked) -> None:
    refuse_sync(step, group, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    group.put(replace(group.members[member_id], syncing=parked))


def refuse_join(step: GroupStep, group: ClassicGroup, member_id: str, code: ErrorCode) -> None:
    member = group.members[member_id]
    if member.joining is not None:
        reply_join_error(step, member, code)
        group.put(replace(member, joining=None))


def refuse_sync(step: GroupStep, group: ClassicGroup, member_id: str, code: ErrorCode) -> None:
    member = group.members[member_id]
    if member.syncing is not None:
        step.reply(member.syncing.ticket, sync_error(code))
        group.put(replace(member, syncing=None))


def reply_join_error(step: GroupStep, member: ClassicMember, code: ErrorCode) -> None:
    if member.joining is not None:
        # A removed member has no id any more.
        member_id = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else member.id
        step.reply(member.joining.ticket, join_error(code, member_id, member.joining.version))


def refuse_parked(step: GroupStep, member: ClassicMember, code: ErrorCode) -> None:
    """Reply to the parked requests of a member that is no longer in the group."""
    reply_join_error(step, member, code)
    if member.syncing is not None:
        step.reply(member.syncing.ticket, sync_error(code))
