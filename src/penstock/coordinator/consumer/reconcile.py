"""One step of a member towards its target assignment (KIP-848). PURE.

A member first gives up what is not its own any more, says so, and only then comes into the new
epoch and gets what is free. So no partition ever has two owners, and what a member keeps never
stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from penstock.coordinator.assignors.spec import Assignment
from penstock.coordinator.consumer.member import ConsumerMember, MemberState, Owned


@dataclass(frozen=True, slots=True)
class Reconciling:
    """What a member is to become. `owned` is what it says it has (None: it said nothing),
    `subscribed` the topics it still wants."""

    target_epoch: int
    target: Assignment
    subscribed: frozenset[UUID]
    owned: Mapping[UUID, frozenset[int]] | None
    owner: Callable[[UUID, int], str | None]

    def step(self, member: ConsumerMember) -> ConsumerMember:
        """The member after it; the same one if it can go no further."""
        if member.state is MemberState.STABLE and member.epoch == self.target_epoch:
            return self._drop_unwanted(member)
        if member.state is MemberState.UNREVOKED_PARTITIONS and self._has_any(member.revoking):
            return self._drop_unwanted(member)
        return self._next(member)

    def _next(self, member: ConsumerMember) -> ConsumerMember:
        kept: dict[UUID, dict[int, int]] = {}
        revoking: dict[UUID, dict[int, int]] = {}
        for topic, epochs in member.assigned.items():
            wanted = self._target(topic)
            _put(
                kept,
                topic,
                {partition: epoch for partition, epoch in epochs.items() if partition in wanted},
            )
            _put(
                revoking,
                topic,
                {
                    partition: epoch
                    for partition, epoch in epochs.items()
                    if partition not in wanted
                },
            )
        if revoking and self._has_any(revoking):
            return replace(
                member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking
            )
        assigned, all_free = self._with_free(member, kept)
        return replace(
            member,
            state=MemberState.STABLE if all_free else MemberState.UNRELEASED_PARTITIONS,
            epoch=self.target_epoch,
            # A member that lost our answer may still come with it, until it is in a later one.
            previous_epoch=member.previous_epoch
            if member.epoch == self.target_epoch
            else member.epoch,
            assigned=assigned,
            revoking={},
        )

    def _with_free(self, member: ConsumerMember, kept: Owned) -> tuple[Owned, bool]:
        """What it keeps and what nobody else has any more, and whether that is all it is to
        have."""
        assigned = {topic: dict(epochs) for topic, epochs in kept.items()}
        all_free = True
        for topic in self.target:
            for partition in self._target(topic) - kept.get(topic, {}).keys():
                # What it has just given up itself is free for it.
                if self.owner(topic, partition) is None or partition in member.revoking.get(
                    topic, {}
                ):
                    assigned.setdefault(topic, {})[partition] = self.target_epoch
                else:
                    all_free = False
        return assigned, all_free

    def _drop_unwanted(self, member: ConsumerMember) -> ConsumerMember:
        """Topics that it is not subscribed to any more go at once, also when there is no new target
        yet."""
        unwanted = {
            topic: epochs
            for topic, epochs in member.assigned.items()
            if topic not in self.subscribed
        }
        if not unwanted:
            return member
        kept = {topic: epochs for topic, epochs in member.assigned.items() if topic not in unwanted}
        revoking = {
            **member.revoking,
            **{
                topic: {**member.revoking.get(topic, {}), **epochs}
                for topic, epochs in unwanted.items()
            },
        }
        if not self._has_any(revoking):
            return replace(member, assigned=kept)
        return replace(
            member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking
        )

    def _target(self, topic: UUID) -> frozenset[int]:
        return self.target.get(topic, frozenset()) if topic in self.subscribed else frozenset()

    def _has_any(self, partitions_by_topic: Owned) -> bool:
        """Whether the member may still have some of these: it must say what it has for us to
        know."""
        return self.owned is None or any(
            not partitions.isdisjoint(partitions_by_topic.get(topic, {}))
            for topic, partitions in self.owned.items()
        )


def _put(
    partitions_by_topic: dict[UUID, dict[int, int]], topic: UUID, epochs: dict[int, int]
) -> None:
    if epochs:
        partitions_by_topic[topic] = epochs
