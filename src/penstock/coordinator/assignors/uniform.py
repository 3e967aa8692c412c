"""The uniform assignor: as balanced as the subscriptions allow, then as few moves as possible, then
near replicas. PURE.

First it is settled how many partitions each member gets, then which: members keep what they had up
to that number. Topics that the same members want are shared out together. Where subscriptions
differ, each such lot is levelled upon what the members have from the others, over and over until
nothing changes; each change brings the loads closer together, so that this ends.
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
    """Topics that the same members want. `held` is what they keep of the former assignment,
    `shares` how many each is to have."""

    subscribers: tuple[str, ...]
    held: list[list[_Partition]]
    free: list[_Partition]
    shares: list[int]


def assign_uniform(
    members: Mapping[str, Subscriber], topics: Mapping[UUID, AssignableTopic]
) -> dict[str, Assignment]:
    together = topics_by_subscribers(members, topics)
    # What few members want leaves the least choice, so it goes first.
    lots = [
        _lot(members, topics, who, which)
        for who, which in sorted(together.items(), key=lambda item: len(item[0]))
    ]
    _level(lots)
    given: dict[str, list[_Partition]] = {member_id: [] for member_id in members}
    for lot in lots:
        _share_out(lot, members, topics)
        for member_id, held in zip(lot.subscribers, lot.held, strict=True):
            given[member_id] += held
    return {member_id: by_topic(partitions) for member_id, partitions in given.items()}


def _lot(
    members: Mapping[str, Subscriber],
    topics: Mapping[UUID, AssignableTopic],
    subscribers: tuple[str, ...],
    which: list[UUID],
) -> _Lot:
    left = {topic: set(range(topics[topic].partitions)) for topic in which}
    held: list[list[_Partition]] = []
    for member_id in subscribers:
        mine: list[_Partition] = []
        for topic, partitions in members[member_id].former.items():
            if topic in left:
                mine += [(topic, partition) for partition in partitions & left[topic]]
                left[topic] -= partitions
        held.append(mine)
    free = [(topic, partition) for topic in which for partition in sorted(left[topic])]
    return _Lot(subscribers, held, free, [len(mine) for mine in held])


def _level(lots: list[_Lot]) -> None:
    loads: dict[str, int] = {}
    for lot in lots:
        for member_id, share in zip(lot.subscribers, lot.shares, strict=True):
            loads[member_id] = loads.get(member_id, 0) + share
    for _ in range(MAX_LEVELLING_PASSES):
        changes = [_level_one(lot, loads) for lot in lots]
        if not any(changes):
            return


def _level_one(lot: _Lot, loads: dict[str, int]) -> bool:
    others = [
        loads[member_id] - share
        for member_id, share in zip(lot.subscribers, lot.shares, strict=True)
    ]
    total = sum(map(len, lot.held)) + len(lot.free)
    shares = level_shares(others, lot.shares, total)
    if shares == lot.shares:
        return False
    lot.shares = shares
    for member_id, other, share in zip(lot.subscribers, others, shares, strict=True):
        loads[member_id] = other + share
    return True


def level_shares(others: list[int], present: list[int], total: int) -> list[int]:
    """Shares of `total` that, put upon what each has besides, are as level as can be. Who has more
    at present keeps one more."""
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


def _share_out(
    lot: _Lot, members: Mapping[str, Subscriber], topics: Mapping[UUID, AssignableTopic]
) -> None:
    """Whoever has more than its share gives the rest up, and whoever has less takes of that: what
    has a replica near it first."""
    racks = [members[member_id].rack for member_id in lot.subscribers]
    free = list(lot.free)
    for held, share, rack in zip(lot.held, lot.shares, racks, strict=True):
        if len(held) > share:
            # By number, so that it is not all of one topic that goes.
            held.sort(
                key=lambda held_one: (
                    not topics[held_one[0]].is_near(held_one[1], rack),
                    held_one[1],
                    held_one[0].bytes,
                )
            )
            free += held[share:]
            del held[share:]
    lacking = [share - len(held) for held, share in zip(lot.held, lot.shares, strict=True)]
    if any(rack is not None for rack in racks):
        free = _give_near(lot, free, lacking, racks, topics)
    takers = deque(index for index, lack in enumerate(lacking) if lack)
    for partition in free:
        index = takers[0]
        lot.held[index].append(partition)
        lacking[index] -= 1
        if lacking[index]:
            takers.rotate(-1)
        else:
            takers.popleft()


def _give_near(
    lot: _Lot,
    free: list[_Partition],
    lacking: list[int],
    racks: list[str | None],
    topics: Mapping[UUID, AssignableTopic],
) -> list[_Partition]:
    """Gives what has a replica near to somebody who lacks partitions; what is left has none."""
    takers: dict[str, deque[int]] = {}
    wanted: dict[str, int] = {}
    for index, rack in enumerate(racks):
        if rack is not None and lacking[index]:
            takers.setdefault(rack, deque()).append(index)
            wanted[rack] = wanted.get(rack, 0) + lacking[index]
    far: list[_Partition] = []
    # What few racks have leaves the least choice.
    for topic, partition in sorted(free, key=lambda one: len(topics[one[0]].racks_of(one[1]))):
        near = [rack for rack in sorted(topics[topic].racks_of(partition)) if wanted.get(rack)]
        if not near:
            far.append((topic, partition))
            continue
        rack = max(near, key=wanted.__getitem__)
        index = takers[rack].popleft()
        lot.held[index].append((topic, partition))
        wanted[rack] -= 1
        lacking[index] -= 1
        if lacking[index]:
            takers[rack].append(index)
    return far
