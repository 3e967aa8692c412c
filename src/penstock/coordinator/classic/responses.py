"""Answers to members of classic groups. PURE."""

from __future__ import annotations

from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.classic.member import ClassicMember, Parked
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse

# Before, the name of the protocol may not be null.
_NULLABLE_PROTOCOL_VERSION = 7
# KIP-814: the leader can be told that it need not assign.
_SKIP_ASSIGNMENT_VERSION = 9


def join_refused(code: ErrorCode, member_id: str, version: int) -> JoinGroupResponse:
    protocol = None if version >= _NULLABLE_PROTOCOL_VERSION else ""
    return JoinGroupResponse(error_code=code, protocol_name=protocol, member_id=member_id)


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """The leader is told of all members, since it assigns."""
    return _joined(group, member_id, group.leader_id, skip_assignment=False)


def came_back(
    group: ClassicGroup, member_id: str, former_leader_id: str | None, version: int
) -> JoinGroupResponse:
    """For a static member under a new id, who need not assign even if it leads.

    Where that cannot be said, the leader's former id is named, so that it does not take itself for
    the leader.
    """
    can_skip = version >= _SKIP_ASSIGNMENT_VERSION
    return _joined(
        group, member_id, group.leader_id if can_skip else former_leader_id, skip_assignment=True
    )


def _joined(
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
            member_id=m.id, group_instance_id=m.instance_id, metadata=m.metadata(group.protocol)
        )
        for m in group.members.values()
    )


def synced(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def park_join(turn: Turn, member: ClassicMember, parked: Parked) -> None:
    """A client that asks again has given up its first request, but that must be answered too."""
    refuse_join(turn, member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.joining = parked


def park_sync(turn: Turn, member: ClassicMember, parked: Parked) -> None:
    refuse_sync(turn, member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.syncing = parked


def refuse_join(turn: Turn, member: ClassicMember, code: ErrorCode) -> None:
    if member.joining is not None:
        # Who is not a member any more has no id.
        member_id = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else member.id
        turn.answer(member.joining.ticket, join_refused(code, member_id, member.joining.version))
        member.joining = None


def refuse_sync(turn: Turn, member: ClassicMember, code: ErrorCode) -> None:
    if member.syncing is not None:
        turn.answer(member.syncing.ticket, sync_refused(code))
        member.syncing = None


def refuse(turn: Turn, member: ClassicMember, code: ErrorCode) -> None:
    """Whatever it waits for."""
    refuse_join(turn, member, code)
    refuse_sync(turn, member, code)
