"""LeaveGroup from a classic group: members go, each by its id or by that of its instance. PURE."""

from __future__ import annotations

from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.classic.rebalance import names, rebalance_or_complete, remove_member
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_CLIENT_REASON_LENGTH
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

Leaving = LeaveGroupRequest.Member


def leave(
    turn: Turn, group: ClassicGroup, members: tuple[Leaving, ...]
) -> tuple[LeaveGroupResponse.Member, ...]:
    """One rebalance for all of them."""
    answers = []
    gone: list[str] = []
    for leaving in members:
        code = ErrorCode.NONE
        try:
            gone.append(_leave_one(turn, group, leaving))
        except KafkaError as error:
            code = error.code
        answers.append(
            LeaveGroupResponse.Member(
                member_id=leaving.member_id,
                group_instance_id=leaving.group_instance_id,
                error_code=code,
            )
        )
    if gone and not group.is_empty:
        rebalance_or_complete(turn, group, f"{names(gone)} left")
    return tuple(answers)


def _leave_one(turn: Turn, group: ClassicGroup, leaving: Leaving) -> str:
    """Who has left, in words."""
    member_id = leaving.member_id
    if not member_id and leaving.group_instance_id is not None:
        # An administrator names the instance alone.
        member_id = group.static_ids.get(leaving.group_instance_id, "")
    if member_id not in group.pending_ids:
        group.check_member(member_id, leaving.group_instance_id)
    remove_member(turn, group, member_id)
    because = f" ({leaving.reason[:MAX_CLIENT_REASON_LENGTH]!r})" if leaving.reason else ""
    return member_id + because
