"""How a classic group goes from one generation to the next. PURE.

    Empty ──────────► PreparingRebalance ──────► CompletingRebalance ──────► Stable
      ▲   somebody      │  ▲       all have joined,   │  ▲   the leader assigned   │
      │   joins         │  │       or time is up      │  └─ (sync)                 │
      └─────────────────┘  └──────────────────────────┴────────────────────────────┘
        nobody is left        somebody comes, goes, or changes what it wants

A generation is in the log once it is stable or empty. One that only began is lost with its
coordinator; nobody has an assignment of it.
"""

from __future__ import annotations

from penstock.coordinator.classic.group import ClassicGroup, State
from penstock.coordinator.classic.member import ClassicMember
from penstock.coordinator.classic.responses import joined, refuse, refuse_sync, synced
from penstock.coordinator.groups.table import JOIN, SESSION, SYNC
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import ErrorCode
from penstock.limits import MAX_REBALANCE_REASONS

# Where only static members are left and none has joined, whatever rebalance timeout they have:
# looking again costs something too.
_LEAST_WAIT_FOR_STATIC_MS = 1_000


def rebalance_or_complete(turn: Turn, group: ClassicGroup, reason: str) -> None:
    """The group has changed: a rebalance begins, or the one that waits for members may have all of
    them now."""
    if group.state is State.PREPARING:
        group.note(reason)
        if not group.is_initial and group.have_all_joined:
            complete_join(turn, group)
    else:
        prepare(turn, group, reason)


def prepare(turn: Turn, group: ClassicGroup, reason: str) -> None:
    """All members must join again. An empty group gives others time to come before its first
    generation."""
    _stop_waiting_for_syncs(turn, group)
    group.rebalance_began_ms = turn.now_ms
    group.rebalance_reasons = [reason]
    group.is_initial = group.is_empty
    group.enter(State.PREPARING, turn.wall_ms)
    if group.is_initial:
        _wait_initially(turn, group)
    elif group.have_all_joined:
        complete_join(turn, group)
    else:
        turn.groups.deadlines.set((JOIN, group.id, ""), turn.now_ms + group.rebalance_timeout_ms)


def _wait_initially(turn: Turn, group: ClassicGroup) -> None:
    delay_ms = turn.groups.settings.initial_rebalance_delay_ms
    group.came_while_waiting = False
    group.initial_delay_ms = delay_ms
    group.initial_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    turn.groups.deadlines.set((JOIN, group.id, ""), turn.now_ms + delay_ms)


def join_time_is_up(turn: Turn, group: ClassicGroup) -> None:
    """For a first rebalance: unless somebody came meanwhile, and its rebalance timeout leaves time
    for more."""
    if group.is_initial and group.came_while_waiting and group.initial_left_ms:
        group.came_while_waiting = False
        delay_ms = min(turn.groups.settings.initial_rebalance_delay_ms, group.initial_left_ms)
        group.initial_left_ms = max(group.initial_left_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        turn.groups.deadlines.set((JOIN, group.id, ""), turn.now_ms + delay_ms)
    else:
        complete_join(turn, group)


def complete_join(turn: Turn, group: ClassicGroup) -> None:
    """The next generation is made of those who have joined, and static members, which may come back
    later."""
    turn.groups.deadlines.cancel((JOIN, group.id, ""))
    late = [m for m in group.members.values() if m.joining is None and m.instance_id is None]
    for member in late:
        remove_member(turn, group, member.id)
    if late:
        group.note(f"{_names(late)} did not join again in time")
    if group.members and not _has_joined_leader(group):
        wait_ms = max(group.rebalance_timeout_ms, _LEAST_WAIT_FOR_STATIC_MS)
        turn.groups.deadlines.set((JOIN, group.id, ""), turn.now_ms + wait_ms)
        return
    group.is_initial = False
    group.begin_generation(turn.wall_ms)
    if group.is_empty:
        turn.write(group.record())
        tell(turn, group, "is empty")
        return
    for member in group.members.values():
        if member.joining is not None:
            turn.answer(member.joining.ticket, joined(group, member.id))
            member.joining = None
        member.is_new = False
        keep_session(turn, group, member)
    turn.groups.deadlines.set((SYNC, group.id, ""), turn.now_ms + group.rebalance_timeout_ms)


def _has_joined_leader(group: ClassicGroup) -> bool:
    """The present leader where it has joined, otherwise the first member that has."""
    leader = None if group.leader_id is None else group.members.get(group.leader_id)
    if leader is None or leader.joining is None:
        leader = next((m for m in group.members.values() if m.joining is not None), None)
    if leader is not None:
        group.leader_id = leader.id
    return leader is not None


def assign(turn: Turn, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
    """The leader has spoken: the generation is stable, and written. One that the log cannot take is
    nobody's."""
    for member in group.members.values():
        member.assignment = assignments.get(member.id, b"")
    if not is_writable(turn, group):
        _refuse_syncs(turn, group, ErrorCode.UNKNOWN_SERVER_ERROR)
        prepare(turn, group, "its members and their assignments are more than one record may hold")
        return
    group.enter(State.STABLE, turn.wall_ms)
    turn.write(group.record())
    for member in group.members.values():
        if member.syncing is not None:
            turn.answer(member.syncing.ticket, synced(group, member))
            member.syncing = None
            keep_session(turn, group, member)
    tell(turn, group, f"is stable with {len(group.members)} members")


def is_writable(turn: Turn, group: ClassicGroup) -> bool:
    """Whether the log would take the group as it is. One that it refuses would cost the shard, and
    all its groups."""
    value = group.record().value
    return value is not None and len(value) <= turn.groups.settings.max_record_bytes


def sync_time_is_up(turn: Turn, group: ClassicGroup) -> None:
    """Who has not asked for its assignment by now is gone."""
    silent = [group.members[member_id] for member_id in group.unsynced_ids]
    for member in silent:
        remove_member(turn, group, member.id)
    if silent:
        prepare(turn, group, f"{_names(silent)} did not ask for their assignment in time")


def has_synced(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    group.unsynced_ids.pop(member_id, None)
    if not group.unsynced_ids:
        turn.groups.deadlines.cancel((SYNC, group.id, ""))


def _refuse_syncs(turn: Turn, group: ClassicGroup, code: ErrorCode) -> None:
    for member in group.members.values():
        if member.syncing is not None:
            refuse_sync(turn, member, code)
            keep_session(turn, group, member)


def _stop_waiting_for_syncs(turn: Turn, group: ClassicGroup) -> None:
    _refuse_syncs(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.unsynced_ids.clear()
    turn.groups.deadlines.cancel((SYNC, group.id, ""))


def remove_member(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    turn.groups.deadlines.cancel((SESSION, group.id, member_id))
    member = group.remove(member_id)
    if member is not None:
        refuse(turn, member, ErrorCode.UNKNOWN_MEMBER_ID)


def keep_session(turn: Turn, group: ClassicGroup, member: ClassicMember) -> None:
    turn.groups.deadlines.set(
        (SESSION, group.id, member.id), turn.now_ms + member.session_timeout_ms
    )


def tell(turn: Turn, group: ClassicGroup, outcome: str) -> None:
    """One line for each rebalance."""
    took_ms = turn.now_ms - group.rebalance_began_ms
    turn.tell(
        f"group {group.id}: generation {group.generation} {outcome} after {took_ms} ms: "
        f"{'; '.join(group.rebalance_reasons)}"
    )


def _names(members: list[ClassicMember]) -> str:
    return names([member.id for member in members])


def names(ids: list[str]) -> str:
    """As many as a line has room for."""
    shown = ", ".join(ids[:MAX_REBALANCE_REASONS])
    return (
        shown
        if len(ids) <= MAX_REBALANCE_REASONS
        else f"{shown} and {len(ids) - MAX_REBALANCE_REASONS} more"
    )
