"""The range assignor: of each topic a member gets one run of partitions, and the same run of all
topics that are alike. PURE.

Topics are alike where the same members want them and they have as many partitions: so partition n
of two topics that are joined goes to one member. Where racks are known, a run goes to a member that
has replicas of the most of it in its rack.
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
    given: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for subscribers, which in topics_by_subscribers(members, topics).items():
        alike: dict[int, list[UUID]] = {}
        for topic in which:
            alike.setdefault(topics[topic].partitions, []).append(topic)
        for partitions, same in alike.items():
            for member_id, run in _runs(
                subscribers, partitions, members, [topics[topic] for topic in same]
            ):
                given[member_id].update(dict.fromkeys(same, frozenset(run)))
    return dict(given)


def _runs(
    subscribers: tuple[str, ...],
    partitions: int,
    members: Mapping[str, Subscriber],
    topics: list[AssignableTopic],
) -> list[tuple[str, range]]:
    """Who gets which run; the first ones are one longer where it does not divide evenly. Nobody
    gets an empty one."""
    shortest, longer = divmod(partitions, len(subscribers))
    waiting = list(subscribers)
    given: list[tuple[str, range]] = []
    start = 0
    for index in range(min(partitions, len(subscribers))):
        run = range(start, start + shortest + (index < longer))
        start = run.stop
        member_id = _nearest(waiting, run, members, topics)
        waiting.remove(member_id)
        given.append((member_id, run))
    return given


def _nearest(
    waiting: list[str], run: range, members: Mapping[str, Subscriber], topics: list[AssignableTopic]
) -> str:
    """The first of those who wait that has the most of the run nearby."""
    if not any(topic.racks for topic in topics):
        return waiting[0]
    near: dict[str | None, int] = {}
    for rack in {members[member_id].rack for member_id in waiting}:
        near[rack] = sum(topic.is_near(partition, rack) for topic in topics for partition in run)
    return max(waiting, key=lambda member_id: near[members[member_id].rack])
