"""The uniform assignor: as balanced as the subscriptions allow, then with as few moves as possible,
then near replicas. PURE.

It first computes how many partitions each member gets, then which: members keep what they had up to
that number. Topics with the same subscribers form a lot and are assigned together. If subscriptions
differ, each lot is balanced on top of what the members have from the other lots, again and again
until nothing changes. Each change brings the loads closer together, so this ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from penstock.coordinator.assignors.spec import (
    AssignableTopic,
    Assignment,
    Subscriber,
    by_topic,
    topics_by_subscribers,
)
from penstock.limits import MAX_LEVELLING_PASSES

_Partition = tuple[UUID, int]


@dataclass(slots=True)
class _Lot:
    """Topics with the same subscribers. For each subscriber, `kept` has the partitions that it
    keeps of its former assignment, and `shares` how many it gets."""

    subscribers: tuple[str, ...]
    kept: list[list[_Partition]]
    free: list[_Partition]
    shares: list[int]


def assign_uniform(
    members: Mapping[str, Subscriber], topics: Mapping[UUID, AssignableTopic]
) -> dict[str, Assignment]:
    grouped = topics_by_subscribers(members, topics)
    # Topics with few subscribers leave the least choice, so they go first.
    lots = [
        _lot(members, topics, subscribers, topic_ids)
        for subscribers, topic_ids in sorted(grouped.items(), key=lambda item: len(item[0]))
    ]
    _balance(lots)
    targets: dict[str, list[_Partition]] = {member_id: [] for member_id in members}
    for lot in lots:
        _assign(lot, members, topics)
        for member_id, kept in zip(lot.subscribers, lot.kept, strict=True):
            targets[member_id] += kept
    return {member_id: by_topic(partitions) for member_id, partitions in targets.items()}


def _lot(
    members: Mapping[str, Subscriber],
    topics: Mapping[UUID, AssignableTopic],
    subscribers: tuple[str, ...],
    topic_ids: list[UUID],
) -> _Lot:
    unassigned = {topic: set(range(topics[topic].partitions)) for topic in topic_ids}
    kept: list[list[_Partition]] = []
    for member_id in subscribers:
        former: list[_Partition] = []
        for topic, partitions in members[member_id].former.items():
            if topic in unassigned:
                former += [(topic, partition) for partition in partitions & unassigned[topic]]
                unassigned[topic] -= partitions
        kept.append(former)
    free = [(topic, partition) for topic in topic_ids for partition in sorted(unassigned[topic])]
    return _Lot(subscribers, kept, free, [len(former) for former in kept])


def _balance(lots: list[_Lot]) -> None:
    loads: dict[str, int] = {}
    for lot in lots:
        for member_id, share in zip(lot.subscribers, lot.shares, strict=True):
            loads[member_id] = loads.get(member_id, 0) + share
    for _ in range(MAX_LEVELLING_PASSES):
        changes = [_balance_lot(lot, loads) for lot in lots]
        if not any(changes):
            return


def _balance_lot(lot: _Lot, loads: dict[str, int]) -> bool:
    others = [
        loads[member_id] - share
        for member_id, share in zip(lot.subscribers, lot.shares, strict=True)
    ]
    total = sum(map(len, lot.kept)) + len(lot.free)
    shares = balanced_shares(others, lot.shares, total)
    if shares == lot.shares:
        return False
    lot.shares = shares
    for member_id, other, share in zip(lot.subscribers, others, shares, strict=True):
        loads[member_id] = other + share
    return True


def balanced_shares(others: list[int], present: list[int], total: int) -> list[int]:
    """Divide `total` among members that have `others` partitions besides, so that the sums are as
    even as possible. Members that exceed their share at present keep one more."""
    ordered = sorted(others)
    below, level = 0, 0
    for count, other in enumerate(ordered, 1):
        below += other
        level = (total + below) // count
        if count == len(ordered) or level < ordered[count]:
            break
    shares = [max(0, level - other) for other in others]
    takers = [index for index, other in enumerate(others) if other <= level]
    takers.sort(key=lambda index: present[index] <= shares[index])
    for index in takers[: total - sum(shares)]:
        shares[index] += 1
    return shares


def _assign(
    lot: _Lot, members: Mapping[str, Subscriber], topics: Mapping[UUID, AssignableTopic]
) -> None:
    """Take from members that exceed their share, and give to those below theirs; partitions with
    replicas in a member's rack first."""
    racks = [members[member_id].rack for member_id in lot.subscribers]
    free = list(lot.free)
    for kept, share, rack in zip(lot.kept, lot.shares, racks, strict=True):
        if len(kept) > share:
            # By partition number, so that the member does not lose all of one topic.
            kept.sort(
                key=lambda item: (
                    not topics[item[0]].is_near(item[1], rack),
                    item[1],
                    item[0].bytes,
                )
            )
            free += kept[share:]
            del kept[share:]
    lacking = [share - len(kept) for kept, share in zip(lot.kept, lot.shares, strict=True)]
    if any(rack is not None for rack in racks):
        free = _assign_near(lot, free, lacking, racks, topics)
    takers = deque(index for index, lack in enumerate(lacking) if lack)
    for partition in free:
        index = takers[0]
        lot.kept[index].append(partition)
        lacking[index] -= 1
        if lacking[index]:
            takers.rotate(-1)
        else:
            takers.popleft()


def _assign_near(
    lot: _Lot,
    free: list[_Partition],
    lacking: list[int],
    racks: list[str | None],
    topics: Mapping[UUID, AssignableTopic],
) -> list[_Partition]:
    """Assign partitions to members in a rack of their replicas; return the others."""
    takers: dict[str, deque[int]] = {}
    lacking_in: dict[str, int] = {}
    for index, rack in enumerate(racks):
        if rack is not None and lacking[index]:
            takers.setdefault(rack, deque()).append(index)
            lacking_in[rack] = lacking_in.get(rack, 0) + lacking[index]
    far: list[_Partition] = []
    # Partitions with replicas in few racks leave the least choice.
    for topic, partition in sorted(free, key=lambda item: len(topics[item[0]].racks_of(item[1]))):
        near = [rack for rack in sorted(topics[topic].racks_of(partition)) if lacking_in.get(rack)]
        if not near:
            far.append((topic, partition))
            continue
        rack = max(near, key=lacking_in.__getitem__)
        index = takers[rack].popleft()
        lot.kept[index].append((topic, partition))
        lacking_in[rack] -= 1
        lacking[index] -= 1
        if lacking[index]:
            takers[rack].append(index)
    return far
