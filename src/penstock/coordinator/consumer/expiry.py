"""What time does to consumer groups: members that are not heard of, or do not give up what they
must, are gone. PURE."""

from __future__ import annotations

from penstock.coordinator.consumer.deadlines import (
    REJOIN,
    REVOKE,
    SESSION,
    SYNC,
    expect_revocation,
    keep_session,
)
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.leave import remove_members
from penstock.coordinator.groups.table import Groups
from penstock.coordinator.runtime.step import Step
from penstock.coordinator.runtime.turn import Turn

_WHY = {
    SESSION: "was not heard of in time",
    REVOKE: "did not give up its partitions in time",
    REJOIN: "did not join again in time",
    SYNC: "did not ask for its assignment in time",
}


def expire(groups: Groups, now_ms: int, wall_ms: int = -1) -> Step:
    turn = Turn(groups, now_ms, wall_ms)
    while (key := groups.consumer_deadlines.pop_due(now_ms)) is not None:
        kind, group_id, member_id = key
        group = groups.by_id.get(group_id)
        if isinstance(group, ConsumerGroup) and member_id in group.members:
            remove_members(turn, group, [group.members[member_id]], f"{member_id} {_WHY[kind]}")
    return turn.step()


def next_deadline_ms(groups: Groups) -> int | None:
    return groups.consumer_deadlines.next_ms()


def begin(groups: Groups, now_ms: int) -> None:
    """After loading: everybody has the whole time again, since nobody knows when it was last heard
    of."""
    for group in groups.by_id.values():
        if isinstance(group, ConsumerGroup):
            for member in group.members.values():
                keep_session(groups, group, member, now_ms)
                expect_revocation(groups, group, member, now_ms)
