"""What time does to classic groups: sessions end, and nobody is waited for any longer. PURE."""

from __future__ import annotations

from penstock.coordinator.classic.group import ClassicGroup, State
from penstock.coordinator.classic.rebalance import (
    join_time_is_up,
    keep_session,
    prepare,
    rebalance_or_complete,
    remove_member,
    sync_time_is_up,
)
from penstock.coordinator.groups.table import JOIN, SESSION, SYNC
from penstock.coordinator.runtime.turn import Turn


def expire_classic(turn: Turn) -> None:
    """Deadlines may be of a group that has gone meanwhile, and is back: they mean nothing to it."""
    while (key := turn.groups.deadlines.pop_due(turn.now_ms)) is not None:
        kind, group_id, member_id = key
        group = turn.groups.by_id.get(group_id)
        if not isinstance(group, ClassicGroup):
            continue
        if kind == JOIN and group.state is State.PREPARING:
            join_time_is_up(turn, group)
        elif kind == SYNC and group.state in (State.COMPLETING, State.STABLE):
            sync_time_is_up(turn, group)
        elif kind == SESSION:
            _end_session(turn, group, member_id)


def _end_session(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    """A member that waits for us lives: its session goes on when it is answered."""
    member = group.members.get(member_id)
    if member is not None and member.is_kept_alive:
        return
    was_pending = member is None
    remove_member(turn, group, member_id)
    if not group.is_empty and (not was_pending or group.state is State.PREPARING):
        rebalance_or_complete(turn, group, f"{member_id} was not heard of in time")


def begin(turn: Turn) -> None:
    """After loading: members have their whole session to be heard of again, since nobody knows when
    they last were."""
    for group in list(turn.groups.by_id.values()):
        if not isinstance(group, ClassicGroup):
            continue
        for member in group.members.values():
            keep_session(turn, group, member)
        if len(group.members) > turn.groups.settings.max_size:
            prepare(
                turn,
                group,
                (
                    f"it has {len(group.members)} members, where {turn.groups.settings.max_size} "
                    "are "
                    "allowed now"
                ),
            )
