"""The reconciliation of members with the target assignment (KIP-848). PURE.

A member first revokes what is no longer its own, reports that, and only then enters the new epoch
and gets partitions that are free. So a partition never has two owners, and a member keeps reading
what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from penstock.coordinator.assignors.spec import EMPTY_ASSIGNMENT, Assignment
from penstock.coordinator.consumer.assignment import (
    Rights,
    log_if_settled,
    refresh_subscription,
    topic_ids,
    update_target,
)
from penstock.coordinator.consumer.group import ConsumerGroup, ConsumerMember, MemberState, Owned
from penstock.coordinator.consumer.records import (
    current_bytes,
    delete_member,
    write_current,
    write_member,
    write_target,
)
from penstock.coordinator.consumer.timeouts import (
    cancel_deadlines,
    expect_revocation,
    extend_session,
)
from penstock.coordinator.groups.step import GroupStep


def advance(
    step: GroupStep,
    group: ConsumerGroup,
    updated: ConsumerMember,
    owned: Mapping[UUID, frozenset[int]] | None,
    rights: Rights | None = None,
) -> ConsumerMember:
    """Handle a request of a member, in either protocol; return the member afterwards.

    Write what it says of itself, bump the group epoch if that or the topics changed, compute a new
    target assignment if one is due, and take the member one step towards its own. `updated` differs
    from the group's member only in what the member says of itself; it may be new.
    """
    before = group.members.get(updated.id)
    if updated != before:
        write_member(step, group.id, updated)
    has_changed = refresh_subscription(step, group, _bump_reason(before, updated), rights)
    update_target(step, group)
    member = group.members[updated.id]
    if has_changed or not member.is_reconciled_to(group.target_epoch):
        member = _reconcile(step, group, member, owned)
    extend_session(step, group, member)
    log_if_settled(step, group)
    return member


def _bump_reason(before: ConsumerMember | None, updated: ConsumerMember) -> str | None:
    if before is None:
        return f"{updated.id} joined"
    if before.topics != updated.topics or before.regex != updated.regex:
        return f"{updated.id} changed its subscription"
    return None


def _reconcile(
    step: GroupStep,
    group: ConsumerGroup,
    member: ConsumerMember,
    owned: Mapping[UUID, frozenset[int]] | None,
) -> ConsumerMember:
    target = group.targets.get(member.id, EMPTY_ASSIGNMENT)
    subscribed = topic_ids(step.groups.image, group.topics_of(member))
    after = Reconciliation(group.target_epoch, target, subscribed, owned, group.owner).step(member)
    # What does not fit into this step is left to the member's next request.
    if after != member and step.has_room(current_bytes(group.id, after)):
        write_current(step, group.id, after)
        expect_revocation(step, group, after)
    return group.members[member.id]


def replace_static(
    step: GroupStep, group: ConsumerGroup, former: ConsumerMember, member_id: str
) -> ConsumerMember:
    """Give a static member that returned under another id the partitions of its former one."""
    target = group.targets.get(former.id, EMPTY_ASSIGNMENT)
    member = replace(former, id=member_id, epoch=0, previous_epoch=0)
    if former.id != member_id:
        remove_member(step, group.id, former.id)
    write_member(step, group.id, member)
    write_target(step, group.id, member_id, target)
    write_current(step, group.id, member)
    return member


def remove_member(step: GroupStep, group_id: str, member_id: str) -> None:
    delete_member(step, group_id, member_id)
    cancel_deadlines(step, group_id, member_id)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """`owned` is what the member reports that it owns (None: no report), `subscribed` the topics of
    its present subscription."""

    target_epoch: int
    target: Assignment
    subscribed: frozenset[UUID]
    owned: Mapping[UUID, frozenset[int]] | None
    owner: Callable[[UUID, int], str | None]

    def step(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member after one step; the same one if it must wait."""
        if member.state is MemberState.STABLE and member.epoch == self.target_epoch:
            return self._revoke_unsubscribed(member)
        if member.state is MemberState.UNREVOKED_PARTITIONS and self._may_own(member.revoking):
            return self._revoke_unsubscribed(member)
        return self._next(member)

    def _next(self, member: ConsumerMember) -> ConsumerMember:
        kept: dict[UUID, dict[int, int]] = {}
        revoking: dict[UUID, dict[int, int]] = {}
        for topic, epochs in member.assigned.items():
            target = self._target(topic)
            for partition, epoch in epochs.items():
                side = kept if partition in target else revoking
                side.setdefault(topic, {})[partition] = epoch
        if revoking and self._may_own(revoking):
            return replace(
                member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking
            )
        assigned, all_free = self._with_free(member, kept)
        return replace(
            member,
            state=MemberState.STABLE if all_free else MemberState.UNRELEASED_PARTITIONS,
            epoch=self.target_epoch,
            # A member that lost the response may still send its previous epoch, until it is in a
            # later one.
            previous_epoch=member.previous_epoch
            if member.epoch == self.target_epoch
            else member.epoch,
            assigned=assigned,
            revoking={},
        )

    def _with_free(self, member: ConsumerMember, kept: Owned) -> tuple[Owned, bool]:
        """Return what the member keeps and what no other member owns, and whether that is its whole
        target."""
        assigned = {topic: dict(epochs) for topic, epochs in kept.items()}
        all_free = True
        for topic in self.target:
            for partition in self._target(topic) - kept.get(topic, {}).keys():
                # What the member has just revoked itself is free for it.
                if self.owner(topic, partition) is None or partition in member.revoking.get(
                    topic, {}
                ):
                    assigned.setdefault(topic, {})[partition] = self.target_epoch
                else:
                    all_free = False
        return assigned, all_free

    def _revoke_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """Revoke topics of which the member has unsubscribed immediately, without waiting for a new
        target."""
        unsubscribed = {
            topic: epochs
            for topic, epochs in member.assigned.items()
            if topic not in self.subscribed
        }
        if not unsubscribed:
            return member
        kept = {
            topic: epochs for topic, epochs in member.assigned.items() if topic not in unsubscribed
        }
        revoking = {
            **member.revoking,
            **{
                topic: {**member.revoking.get(topic, {}), **epochs}
                for topic, epochs in unsubscribed.items()
            },
        }
        if not self._may_own(revoking):
            return replace(member, assigned=kept)
        return replace(
            member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking
        )

    def _target(self, topic: UUID) -> frozenset[int]:
        return self.target.get(topic, frozenset()) if topic in self.subscribed else frozenset()

    def _may_own(self, partitions_by_topic: Owned) -> bool:
        """Return True if the member owns one of these, or has not reported what it owns."""
        return self.owned is None or any(
            not partitions.isdisjoint(partitions_by_topic.get(topic, {}))
            for topic, partitions in self.owned.items()
        )
