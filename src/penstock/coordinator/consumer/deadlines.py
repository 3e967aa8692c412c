"""What members of consumer groups are given time for, and how much. PURE."""

from __future__ import annotations

from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.member import ConsumerMember, MemberState
from penstock.coordinator.consumer.settings import session_timeout_ms
from penstock.coordinator.groups.table import Groups

# Kinds of deadlines: to be heard of; to give up partitions; and for a member that speaks the
# classic protocol, to join again and to ask for its assignment. A key is the kind, the group and
# the member.
SESSION = "session"
REVOKE = "revoke"
REJOIN = "rejoin"
SYNC = "sync"


def forget_member(groups: Groups, group_id: str, member_id: str) -> None:
    for kind in (SESSION, REVOKE, REJOIN, SYNC):
        groups.consumer_deadlines.cancel((kind, group_id, member_id))


def keep_session(groups: Groups, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
    timeout_ms = (
        session_timeout_ms(groups, group.id)
        if member.classic is None
        else member.classic.session_timeout_ms
    )
    groups.consumer_deadlines.set((SESSION, group.id, member.id), now_ms + timeout_ms)


def expect_revocation(
    groups: Groups, group: ConsumerGroup, member: ConsumerMember, now_ms: int
) -> None:
    """Or not, if it has nothing to give up. Who speaks the classic protocol gives up by joining
    again, which has its own deadline."""
    if member.classic is None:
        key = (REVOKE, group.id, member.id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            groups.consumer_deadlines.set(key, now_ms + member.rebalance_timeout_ms)
        else:
            groups.consumer_deadlines.cancel(key)


def expect_rejoin(
    groups: Groups, group: ConsumerGroup, member: ConsumerMember, now_ms: int
) -> None:
    """Asking again does not prolong it."""
    key = (REJOIN, group.id, member.id)
    if groups.consumer_deadlines.get(key) is None:
        groups.consumer_deadlines.set(key, now_ms + member.rebalance_timeout_ms)


def expect_sync(groups: Groups, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
    groups.consumer_deadlines.cancel((REJOIN, group.id, member.id))
    groups.consumer_deadlines.set((SYNC, group.id, member.id), now_ms + member.rebalance_timeout_ms)


def synced(groups: Groups, group: ConsumerGroup, member: ConsumerMember) -> None:
    groups.consumer_deadlines.cancel((SYNC, group.id, member.id))
