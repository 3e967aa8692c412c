"""Partitions are gone through when a broker comes or goes: who is in sync, and who leads. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.controller.context import ControllerContext
from penstock.controller.partitions.candidates import Candidates
from penstock.controller.partitions.change import (
    AS_IT_IS,
    Change,
    Election,
    Wanted,
    change_partition,
)
from penstock.controller.topics.rules import AllTopicRules
from penstock.metadata.image import NO_LEADER, MetadataImage, PartitionState


@dataclass(slots=True)
class Changes:
    """Records that are gathered, and notes on them."""

    records: list[object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, change: Change | None) -> None:
        if change is not None:
            self.records.append(change.record)
            if change.note is not None:
                self.notes.append(change.note)


def has_leaderships(image: MetadataImage, broker_id: int) -> bool:
    return any(
        state.leader == broker_id
        for topic in image.topics.values()
        for state in topic.partitions.values()
    )


def without_broker(
    image: MetadataImage,
    node: ControllerContext,
    broker_id: int,
    *,
    unclean: bool = False,
    where: Callable[[PartitionState], bool] | None = None,
) -> Changes:
    """The broker leaves the in-sync replicas, and leads no more. `unclean`: nor is it eligible to
    lead any longer."""

    def wanted(state: PartitionState) -> Wanted | None:
        concerned = broker_id in state.isr or (
            unclean and broker_id in state.eligible_leader_replicas
        )
        if not concerned or (where is not None and not where(state)):
            return None
        isr = tuple([replica for replica in state.isr if replica != broker_id])
        return Wanted(isr=isr, unclean=broker_id if unclean else None)

    return _go_through(image, node, Candidates(image, removed=broker_id), wanted)


def with_broker(image: MetadataImage, node: ControllerContext, broker_id: int) -> Changes:
    """The broker may lead from here on: partitions without a leader get one, if it is the one that
    they waited for."""

    def wanted(state: PartitionState) -> Wanted | None:
        return AS_IT_IS if state.leader == NO_LEADER else None

    return _go_through(image, node, Candidates(image, added=broker_id), wanted)


def _go_through(
    image: MetadataImage,
    node: ControllerContext,
    candidates: Candidates,
    wanted: Callable[[PartitionState], Wanted | None],
) -> Changes:
    all_rules = AllTopicRules(image, node)
    changes = Changes()
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            asked = wanted(state)
            if asked is not None:
                rules = all_rules.of(topic)
                election = Election.UNCLEAN if rules.unclean else Election.ONLINE
                changes.add(
                    change_partition(topic, index, state, rules, candidates, election, asked)
                )
    return changes
