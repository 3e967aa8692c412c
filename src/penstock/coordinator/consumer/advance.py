"""What follows when a member of a consumer group has spoken, in either protocol. PURE.

It is noted what it says of itself; the group's epoch goes up if that, or the topics, changed; a new
target assignment is made if it is due; and the member goes one step towards its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from penstock.coordinator.assignors.spec import NOTHING
from penstock.coordinator.consumer.deadlines import expect_revocation, keep_session
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.member import ConsumerMember
from penstock.coordinator.consumer.reconcile import Reconciling
from penstock.coordinator.consumer.subscription import refresh
from penstock.coordinator.consumer.target import topic_ids, update_target
from penstock.coordinator.consumer.write import (
    remove_member,
    tell_if_settled,
    write_current,
    write_member,
    write_target,
)
from penstock.coordinator.runtime.turn import Turn


def advance(
    turn: Turn,
    group: ConsumerGroup,
    updated: ConsumerMember,
    owned: Mapping[UUID, frozenset[int]] | None,
) -> ConsumerMember:
    """The member as it is afterwards. `updated` differs from the group's in what it says of itself
    alone; it may be new."""
    before = group.members.get(updated.id)
    if updated != before:
        write_member(turn, group.id, updated)
    has_changed = refresh(turn, group, _reason(before, updated))
    update_target(turn, group)
    member = group.members[updated.id]
    if has_changed or not member.is_reconciled_to(group.target_epoch):
        member = _reconcile(turn, group, member, owned)
    keep_session(turn.groups, group, member, turn.now_ms)
    tell_if_settled(turn, group)
    return member


def _reason(before: ConsumerMember | None, updated: ConsumerMember) -> str | None:
    """Why the group must be assigned anew, if it must."""
    if before is None:
        return f"{updated.id} came"
    if before.topics != updated.topics or before.regex != updated.regex:
        return f"{updated.id} changed what it reads"
    return None


def _reconcile(
    turn: Turn,
    group: ConsumerGroup,
    member: ConsumerMember,
    owned: Mapping[UUID, frozenset[int]] | None,
) -> ConsumerMember:
    target = group.targets.get(member.id, NOTHING)
    subscribed = topic_ids(turn.groups.image, group.topics_of(member))
    after = Reconciling(group.target_epoch, target, subscribed, owned, group.owner).step(member)
    if after != member:
        write_current(turn, group.id, after)
        expect_revocation(turn.groups, group, after, turn.now_ms)
    return group.members[member.id]


def replace_static(
    turn: Turn, group: ConsumerGroup, former: ConsumerMember, member_id: str
) -> ConsumerMember:
    """An instance is back under another id, and goes on with what it had."""
    target = group.targets.get(former.id, NOTHING)
    member = replace(former, id=member_id, epoch=0, previous_epoch=0)
    if former.id != member_id:
        remove_member(turn, group.id, former.id)
    write_member(turn, group.id, member)
    write_target(turn, group.id, member_id, target)
    write_current(turn, group.id, member)
    return member
