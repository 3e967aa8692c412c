"""The states of a classic group between one generation and the next, and its deadlines. PURE.

    Empty ──────────► PreparingRebalance ──────► CompletingRebalance ──────► Stable
      ▲   a member      │  ▲       all have joined,   │  ▲   the leader assigned   │
      │   joins         │  │       or timed out       │  └─ (sync)                 │
      └─────────────────┘  └──────────────────────────┴────────────────────────────┘
        no member is left     a member joins, leaves, or changes its protocols

A generation is in the log once it is Stable or Empty. One that only began is lost with its
coordinator; no member has an assignment of it.

Callers have called `step.edit(group)`.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.coordinator.classic.group import ClassicGroup, ClassicMember, State
from penstock.coordinator.classic.records import empty_value, stable_value
from penstock.coordinator.classic.responses import (
    join_response,
    refuse_parked,
    refuse_sync,
    sync_response,
)
from penstock.coordinator.groups.step import GroupStep, record
from penstock.coordinator.groups.table import DeadlineKey
from penstock.coordinator.runtime.step import batch_bytes
from penstock.errors import ErrorCode
from penstock.limits import MAX_REBALANCE_REASONS
from penstock.protocol.internal.classic_group_records import GroupMetadataKey, GroupMetadataValue

# Kinds of deadlines. A session is a member's; the others are the group's.
SESSION = "classic session"
JOIN = "classic join"
SYNC = "classic sync"

# The shortest wait for static members when none of them has joined, whatever their rebalance
# timeouts: checking again costs something too.
_MIN_WAIT_FOR_STATIC_MS = 1_000


def rebalance_or_complete(step: GroupStep, group: ClassicGroup, reason: str) -> None:
    """Begin a rebalance, or complete the one in progress if all members have joined."""
    if group.state is State.PREPARING:
        group.add_reason(reason)
        if not group.is_initial and group.have_all_joined:
            complete_join(step, group)
    else:
        prepare(step, group, reason)


def prepare(step: GroupStep, group: ClassicGroup, reason: str) -> None:
    """Begin a rebalance: all members must join again. An empty group waits a while for more members
    before its first generation."""
    _stop_waiting_for_syncs(step, group)
    step.groups.classic_rebalances += 1
    group.rebalance_began_ms = step.now_ms
    group.rebalance_reasons = (reason,)
    group.is_initial = group.is_empty
    group.enter(State.PREPARING, step.wall_ms)
    if group.is_initial:
        _wait_initially(step, group)
    elif group.have_all_joined:
        complete_join(step, group)
    else:
        step.set_deadline(join_key(group), step.now_ms + group.rebalance_timeout_ms)


def _wait_initially(step: GroupStep, group: ClassicGroup) -> None:
    delay_ms = step.groups.settings.initial_rebalance_delay_ms
    group.joined_while_waiting = False
    group.initial_delay_ms = delay_ms
    group.initial_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    step.set_deadline(join_key(group), step.now_ms + delay_ms)


def _join_timed_out(step: GroupStep, group: ClassicGroup) -> None:
    """Complete the rebalance. A first rebalance waits again if a member joined meanwhile and the
    rebalance timeout allows it."""
    if group.is_initial and group.joined_while_waiting and group.initial_left_ms:
        group.joined_while_waiting = False
        delay_ms = min(step.groups.settings.initial_rebalance_delay_ms, group.initial_left_ms)
        group.initial_left_ms = max(group.initial_left_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        step.set_deadline(join_key(group), step.now_ms + delay_ms)
    else:
        complete_join(step, group)


def complete_join(step: GroupStep, group: ClassicGroup) -> None:
    """Begin the next generation with the members that have joined and with static members, which
    may return later."""
    step.cancel_deadline(join_key(group))
    late = [m.id for m in group.members.values() if m.joining is None and m.instance_id is None]
    for member_id in late:
        remove_member(step, group, member_id)
    if late:
        group.add_reason(f"{names(late)} did not join again in time")
    if group.members and not _choose_leader(group):
        wait_ms = max(group.rebalance_timeout_ms, _MIN_WAIT_FOR_STATIC_MS)
        step.set_deadline(join_key(group), step.now_ms + wait_ms)
        return
    group.is_initial = False
    if not group.members:
        group.unsynced_ids.clear()
        value = empty_value(group.protocol_type, group.generation + 1, step.wall_ms)
        step.write(GroupMetadataKey(group=group.id), value)
        _log_rebalance(step, group, "is empty")
        return
    group.begin_generation(step.wall_ms)
    for member in list(group.members.values()):
        if member.joining is not None:
            step.reply(member.joining.ticket, join_response(group, member.id))
        group.put(replace(member, joining=None, is_new=False))
        extend_session(step, group, member)
    step.set_deadline(_sync_key(group), step.now_ms + group.rebalance_timeout_ms)


def _choose_leader(group: ClassicGroup) -> bool:
    """Keep the leader if it has joined, otherwise choose the first member that has. Return False if
    none has."""
    leader = None if group.leader_id is None else group.members.get(group.leader_id)
    if leader is None or leader.joining is None:
        leader = next((m for m in group.members.values() if m.joining is not None), None)
    if leader is not None:
        group.leader_id = leader.id
    return leader is not None


def assign(step: GroupStep, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
    """Write the generation with the leader's assignment: the group is stable. If the log does not
    take it, the members sync in vain and rebalance, as in Kafka."""
    value = stable_value(
        group,
        [
            replace(member, assignment=assignments.get(member.id, b""))
            for member in group.members.values()
        ],
        step.wall_ms,
    )
    if not is_writable(step, group, value):
        _refuse_syncs(step, group, ErrorCode.UNKNOWN_SERVER_ERROR)
        prepare(step, group, "the members and their assignments exceed max.message.bytes")
        return
    step.write(GroupMetadataKey(group=group.id), value)
    for member in list(group.members.values()):
        if member.syncing is not None:
            step.reply(member.syncing.ticket, sync_response(group, member))
            group.put(replace(member, syncing=None))
            extend_session(step, group, member)
    _log_rebalance(step, group, f"is stable with {len(group.members)} members")


def is_writable(step: GroupStep, group: ClassicGroup, value: GroupMetadataValue) -> bool:
    """Return True if the log takes this record in one batch."""
    written = record(GroupMetadataKey(group=group.id), value)
    return batch_bytes([written]) <= step.groups.settings.max_batch_bytes


def has_synced(step: GroupStep, group: ClassicGroup, member_id: str) -> None:
    group.unsynced_ids.pop(member_id, None)
    if not group.unsynced_ids:
        step.cancel_deadline(_sync_key(group))


def _refuse_syncs(step: GroupStep, group: ClassicGroup, code: ErrorCode) -> None:
    for member in list(group.members.values()):
        if member.syncing is not None:
            refuse_sync(step, group, member.id, code)
            extend_session(step, group, member)


def _stop_waiting_for_syncs(step: GroupStep, group: ClassicGroup) -> None:
    _refuse_syncs(step, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.unsynced_ids.clear()
    step.cancel_deadline(_sync_key(group))


def remove_member(step: GroupStep, group: ClassicGroup, member_id: str) -> None:
    step.cancel_deadline(session_key(group, member_id))
    member = group.remove(member_id)
    if member is not None:
        refuse_parked(step, member, ErrorCode.UNKNOWN_MEMBER_ID)


def extend_session(step: GroupStep, group: ClassicGroup, member: ClassicMember) -> None:
    step.set_deadline(session_key(group, member.id), step.now_ms + member.session_timeout_ms)


# Deadlines


def session_key(group: ClassicGroup, member_id: str) -> DeadlineKey:
    return SESSION, group.id, member_id


def join_key(group: ClassicGroup) -> DeadlineKey:
    return JOIN, group.id, ""


def _sync_key(group: ClassicGroup) -> DeadlineKey:
    return SYNC, group.id, ""


def deadline_passed(step: GroupStep, group: ClassicGroup, kind: str, member_id: str) -> None:
    """Act on a deadline. It may be of an earlier group with the same id, and then means nothing to
    this one."""
    step.edit(group)
    if kind == JOIN and group.state is State.PREPARING:
        _join_timed_out(step, group)
    elif kind == SYNC and group.state in (State.COMPLETING, State.STABLE):
        _sync_timed_out(step, group)
    elif kind == SESSION:
        _session_timed_out(step, group, member_id)


def _sync_timed_out(step: GroupStep, group: ClassicGroup) -> None:
    """Remove the members that have not asked for their assignment."""
    silent = list(group.unsynced_ids)
    for member_id in silent:
        remove_member(step, group, member_id)
    if silent:
        prepare(step, group, f"{names(silent)} did not ask for their assignment in time")


def _session_timed_out(step: GroupStep, group: ClassicGroup, member_id: str) -> None:
    """Remove the member. One with a parked request is alive: its session restarts with the
    reply."""
    member = group.members.get(member_id)
    if member is not None and member.is_kept_alive:
        return
    was_pending = member is None
    remove_member(step, group, member_id)
    if not group.is_empty and (not was_pending or group.state is State.PREPARING):
        rebalance_or_complete(step, group, f"{member_id} timed out")


def start_sessions(step: GroupStep, group: ClassicGroup) -> None:
    """After loading, give every member a full session: the time of its last heartbeat is
    unknown."""
    for member in group.members.values():
        extend_session(step, group, member)
    max_size = step.groups.settings.max_size
    if len(group.members) > max_size:
        step.edit(group)
        reason = f"it has {len(group.members)} members, and group.max.size is {max_size}"
        prepare(step, group, reason)


def _log_rebalance(step: GroupStep, group: ClassicGroup, outcome: str) -> None:
    """Log one line for each rebalance."""
    took_ms = step.now_ms - group.rebalance_began_ms
    step.log(
        f"group {group.id}: generation {group.generation} {outcome} after {took_ms} ms: "
        f"{'; '.join(group.rebalance_reasons)}"
    )


def names(member_ids: list[str]) -> str:
    """List as many member ids as a log line shows."""
    shown = ", ".join(member_ids[:MAX_REBALANCE_REASONS])
    return (
        shown
        if len(member_ids) <= MAX_REBALANCE_REASONS
        else f"{shown} and {len(member_ids) - MAX_REBALANCE_REASONS} more"
    )
