"""SyncGroup to a classic group: the leader hands out assignments, the others wait for theirs.
PURE."""

from __future__ import annotations

from penstock.coordinator.classic.group import ClassicGroup, State
from penstock.coordinator.classic.member import Parked
from penstock.coordinator.classic.rebalance import assign, has_synced
from penstock.coordinator.classic.responses import park_sync, sync_refused, synced
from penstock.coordinator.runtime.step import Caller, Ticket
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.sync_group import SyncGroupRequest


def sync(
    turn: Turn,
    group: ClassicGroup | None,
    request: SyncGroupRequest,
    caller: Caller,
    ticket: Ticket,
) -> None:
    try:
        _check(group, request)
    except KafkaError as error:
        turn.answer(ticket, sync_refused(error.code))
        return
    if group is not None:
        _sync(turn, group, request, Parked(ticket, caller.version))


def _sync(turn: Turn, group: ClassicGroup, request: SyncGroupRequest, parked: Parked) -> None:
    member = group.members[request.member_id]
    has_synced(turn, group, member.id)
    if group.state is State.STABLE:
        turn.answer(parked.ticket, synced(group, member))
        return
    park_sync(turn, member, parked)
    if group.leader_id == member.id:
        assign(turn, group, {a.member_id: a.assignment for a in request.assignments})


def _check(group: ClassicGroup | None, request: SyncGroupRequest) -> None:
    if group is None or group.is_empty:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id} has no members")
    group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    _check_protocol(request.protocol_type, group.protocol_type)
    _check_protocol(request.protocol_name, group.protocol)
    if group.state is State.PREPARING:
        raise KafkaError(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"generation {group.generation} of group {group.id} is over",
        )


def _check_protocol(said: str | None, chosen: str | None) -> None:
    """Old clients do not say it."""
    if said is not None and chosen is not None and said != chosen:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group chose {chosen}, not {said}"
        )
