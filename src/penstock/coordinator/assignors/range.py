"""The range assignor: a member gets one range of partitions of each topic, and the same range of
all co-partitioned topics. PURE.

Topics are co-partitioned if the same members subscribe to them and they have as many partitions. So
partition n of two topics that are joined goes to one member. If racks are known, a range goes to a
member whose rack has replicas of most of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from penstock.coordinator.assignors.spec import (
    AssignableTopic,
    Assignment,
    Subscriber,
    topics_by_subscribers,
)


def assign_range(
    members: Mapping[str, Subscriber], topics: Mapping[UUID, AssignableTopic]
) -> dict[str, Assignment]:
    targets: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for subscribers, topic_ids in topics_by_subscribers(members, topics).items():
        by_partitions: dict[int, list[UUID]] = {}
        for topic_id in topic_ids:
            by_partitions.setdefault(topics[topic_id].partitions, []).append(topic_id)
        for partitions, co_partitioned in by_partitions.items():
            images = [topics[topic_id] for topic_id in co_partitioned]
            for member_id, assigned in _ranges(subscribers, partitions, members, images):
                targets[member_id].update(dict.fromkeys(co_partitioned, frozenset(assigned)))
    return dict(targets)


def _ranges(
    subscribers: tuple[str, ...],
    partitions: int,
    members: Mapping[str, Subscriber],
    topics: list[AssignableTopic],
) -> list[tuple[str, range]]:
    """Return members with their ranges. If the partitions do not divide evenly, the first ranges
    are longer by one. No range is empty."""
    shortest, longer = divmod(partitions, len(subscribers))
    unassigned = list(subscribers)
    ranges: list[tuple[str, range]] = []
    start = 0
    for index in range(min(partitions, len(subscribers))):
        assigned = range(start, start + shortest + (index < longer))
        start = assigned.stop
        member_id = _nearest(unassigned, assigned, members, topics)
        unassigned.remove(member_id)
        ranges.append((member_id, assigned))
    return ranges


def _nearest(
    unassigned: list[str],
    partitions: range,
    members: Mapping[str, Subscriber],
    topics: list[AssignableTopic],
) -> str:
    """Return the first member whose rack has replicas of most of the range."""
    if not any(topic.racks for topic in topics):
        return unassigned[0]
    near: dict[str | None, int] = {}
    for rack in {members[member_id].rack for member_id in unassigned}:
        near[rack] = sum(
            topic.is_near(partition, rack) for topic in topics for partition in partitions
        )
    return max(unassigned, key=lambda member_id: near[members[member_id].rack])
