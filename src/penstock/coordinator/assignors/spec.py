"""The input and output of assignors: subscribers with their topics and former assignments. PURE.

Assignors know topics by id alone; `consumer/assignment.py` knows names, groups and epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]
EMPTY_ASSIGNMENT: Assignment = {}


@dataclass(frozen=True, slots=True)
class AssignableTopic:
    """The number of partitions, and for each of them the racks of its replicas (empty: racks do not
    matter)."""

    partitions: int
    racks: tuple[frozenset[str], ...] = ()

    def racks_of(self, partition: int) -> frozenset[str]:
        return self.racks[partition] if self.racks else frozenset()

    def is_near(self, partition: int, rack: str | None) -> bool:
        return rack is not None and rack in self.racks_of(partition)


@dataclass(frozen=True, slots=True)
class Subscriber:
    topics: frozenset[UUID]
    rack: str | None = None
    instance_id: str | None = None
    former: Assignment = field(default_factory=dict)


Assignor = Callable[
    [Mapping[str, Subscriber], Mapping[UUID, AssignableTopic]], dict[str, Assignment]
]


def topics_by_subscribers(
    members: Mapping[str, Subscriber], topics: Mapping[UUID, AssignableTopic]
) -> dict[tuple[str, ...], list[UUID]]:
    """Group topics by their subscribers, so that a group of members with equal subscriptions is one
    case, not thousands.

    Members are in the order in which they get partitions: static ones by their instance id, so that
    a restart changes nothing.
    """
    by_subscription: dict[frozenset[UUID], list[str]] = {}
    for member_id in members:
        by_subscription.setdefault(members[member_id].topics, []).append(member_id)
    subscriptions_to: dict[UUID, list[frozenset[UUID]]] = {}
    for subscription in by_subscription:
        for topic in subscription & topics.keys():
            subscriptions_to.setdefault(topic, []).append(subscription)
    lots: dict[tuple[int, ...], list[UUID]] = {}
    for topic in sorted(subscriptions_to, key=lambda topic: topic.int):
        lots.setdefault(tuple(map(id, subscriptions_to[topic])), []).append(topic)

    def order(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or member_id

    grouped: dict[tuple[str, ...], list[UUID]] = {}
    for lot in lots.values():
        subscribers = [
            member_id
            for subscription in subscriptions_to[lot[0]]
            for member_id in by_subscription[subscription]
        ]
        grouped[tuple(sorted(subscribers, key=order))] = lot
    return grouped


def by_topic(partitions: Iterable[tuple[UUID, int]]) -> Assignment:
    numbers: dict[UUID, list[int]] = {}
    for topic, partition in partitions:
        numbers.setdefault(topic, []).append(partition)
    return {topic: frozenset(listed) for topic, listed in numbers.items()}
