"""Deadlines of members of consumer groups, and the intervals that group configs set. PURE.

A config of the group (KIP-848's group configs) overrides the broker's, within the broker's bounds.
"""

from __future__ import annotations

from penstock.coordinator.consumer.group import ConsumerGroup, ConsumerMember, MemberState
from penstock.coordinator.groups.step import GroupStep
from penstock.coordinator.groups.table import GroupTable
from penstock.limits import SETTLING_HEARTBEAT_MS
from penstock.metadata.image import GROUP

# Kinds of deadlines: to send a heartbeat; to revoke partitions; and for a member that uses the
# classic protocol, to rejoin and to sync.
SESSION = "consumer session"
REVOKE = "consumer revoke"
REJOIN = "consumer rejoin"
SYNC = "consumer sync"

TIMEOUT_REASONS = {
    SESSION: "its session timed out",
    REVOKE: "it did not revoke its partitions in time",
    REJOIN: "it did not rejoin in time",
    SYNC: "it did not ask for its assignment in time",
}


def cancel_deadlines(
    step: GroupStep,
    group_id: str,
    member_id: str,
    kinds: tuple[str, ...] = (SESSION, REVOKE, REJOIN, SYNC),
) -> None:
    for kind in kinds:
        step.cancel_deadline((kind, group_id, member_id))


def extend_session(step: GroupStep, group: ConsumerGroup, member: ConsumerMember) -> None:
    timeout_ms = (
        session_timeout_ms(step.groups, group.id)
        if member.classic is None
        else member.classic.session_timeout_ms
    )
    step.set_deadline((SESSION, group.id, member.id), step.now_ms + timeout_ms)


def expect_revocation(step: GroupStep, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Set the deadline to revoke partitions, if the member has any to revoke. A member that uses
    the classic protocol revokes by rejoining, which has its own deadline."""
    if member.classic is None:
        key = (REVOKE, group.id, member.id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            step.set_deadline(key, step.now_ms + member.rebalance_timeout_ms)
        else:
            step.cancel_deadline(key)


def expect_rejoin(step: GroupStep, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Set the deadline to rejoin; a later call does not extend it."""
    key = (REJOIN, group.id, member.id)
    if step.groups.deadlines.get(key) is None:
        step.set_deadline(key, step.now_ms + member.rebalance_timeout_ms)


def expect_sync(step: GroupStep, group: ConsumerGroup, member: ConsumerMember) -> None:
    step.cancel_deadline((REJOIN, group.id, member.id))
    step.set_deadline((SYNC, group.id, member.id), step.now_ms + member.rebalance_timeout_ms)


def start_deadlines(step: GroupStep, group: ConsumerGroup) -> None:
    """After loading, give every member its full timeouts: the time of its last heartbeat is
    unknown."""
    for member in group.members.values():
        extend_session(step, group, member)
        expect_revocation(step, group, member)


def session_timeout_ms(groups: GroupTable, group_id: str) -> int:
    settings = groups.settings
    configured = _group_config(groups, group_id, "consumer.session.timeout.ms")
    if configured is None:
        return settings.consumer_session_timeout_ms
    return _bounded(
        configured,
        settings.consumer_min_session_timeout_ms,
        settings.consumer_max_session_timeout_ms,
    )


def heartbeat_interval_ms(groups: GroupTable, group: ConsumerGroup, member: ConsumerMember) -> int:
    """A member that is not reconciled gets a shorter interval: each heartbeat takes it one step
    towards its target."""
    settings = groups.settings
    configured = _group_config(groups, group.id, "consumer.heartbeat.interval.ms")
    interval_ms = settings.consumer_heartbeat_interval_ms
    if configured is not None:
        interval_ms = _bounded(
            configured,
            settings.consumer_min_heartbeat_interval_ms,
            settings.consumer_max_heartbeat_interval_ms,
        )
    return (
        interval_ms
        if member.is_reconciled_to(group.assignable_epoch)
        else min(interval_ms, SETTLING_HEARTBEAT_MS)
    )


def assignment_interval_ms(groups: GroupTable, group_id: str) -> int:
    settings = groups.settings
    configured = _group_config(groups, group_id, "consumer.assignment.interval.ms")
    if configured is None:
        return settings.consumer_assignment_interval_ms
    return _bounded(
        configured,
        settings.consumer_min_assignment_interval_ms,
        settings.consumer_max_assignment_interval_ms,
    )


def _group_config(groups: GroupTable, group_id: str, name: str) -> int | None:
    """The controller has checked that the value is a number."""
    text = groups.image.configs.get((GROUP, group_id), {}).get(name)
    return None if text is None else int(text)


def _bounded(value: int, minimum: int, maximum: int) -> int:
    return max(minimum, min(value, maximum))
