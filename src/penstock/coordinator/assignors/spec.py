"""What assignors are asked: who wants which topics, and what each had before. PURE.

Topics are known by id alone; names, groups and epochs are the business of `consumer_target`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]
EMPTY_ASSIGNMENT: Assignment = {}


@dataclass(frozen=True, slots=True)
class AssignableTopic:
    """A topic with `partitions` partitions; `racks` says for each of them where its replicas are
    (empty: nobody asked)."""

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
    """The topics that the same members want lie together, so that a group in which all want the
    same is one case, not thousands.

    Members are in the order in which they are served: static ones by their instance id, so that a
    restart changes nothing.
    """
    alike: dict[frozenset[UUID], list[str]] = {}
    for member_id in members:
        alike.setdefault(members[member_id].topics, []).append(member_id)
    sets_with: dict[UUID, list[frozenset[UUID]]] = {}
    for wanted in alike:
        for topic in wanted & topics.keys():
            sets_with.setdefault(topic, []).append(wanted)
    lots: dict[tuple[int, ...], list[UUID]] = {}
    for topic in sorted(sets_with, key=lambda topic: topic.int):
        lots.setdefault(tuple(map(id, sets_with[topic])), []).append(topic)

    def order(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or member_id

    together: dict[tuple[str, ...], list[UUID]] = {}
    for lot in lots.values():
        subscribers = [member_id for wanted in sets_with[lot[0]] for member_id in alike[wanted]]
        together[tuple(sorted(subscribers, key=order))] = lot
    return together


def by_topic(partitions: Iterable[tuple[UUID, int]]) -> Assignment:
    numbers: dict[UUID, list[int]] = {}
    for topic, partition in partitions:
        numbers.setdefault(topic, []).append(partition)
    return {topic: frozenset(listed) for topic, listed in numbers.items()}
