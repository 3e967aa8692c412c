"""Heartbeat to a classic group: the member lives, and learns whether it must join again. PURE."""

from __future__ import annotations

from penstock.coordinator.classic.group import ClassicGroup, State
from penstock.coordinator.classic.rebalance import keep_session
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.heartbeat import HeartbeatRequest


def heartbeat(turn: Turn, group: ClassicGroup | None, request: HeartbeatRequest) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    try:
        group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
    except KafkaError as error:
        return error.code
    keep_session(turn, group, group.members[request.member_id])
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else ErrorCode.NONE
