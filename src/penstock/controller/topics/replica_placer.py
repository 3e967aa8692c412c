"""Assigns replicas of new partitions to brokers (Kafka's `StripedReplicaPlacer`). PURE.

Leaders rotate over the racks, and over the brokers of each rack; followers go to the next racks. So
leaders and replicas are spread evenly, and no rack has two replicas of a partition while another
rack has a free broker. Fenced brokers are a last resort, and never lead. After each round over the
brokers their order is shuffled, so that the followers of one leader vary. The same seed gives the
same assignment.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import BrokerImage

_MASK = 2**64 - 1
NO_BROKER = -1


def usable_brokers(brokers: Iterable[BrokerImage]) -> list[BrokerImage]:
    """Return the brokers that may get new replicas, including fenced ones."""
    return [
        broker
        for broker in brokers
        if not broker.in_controlled_shutdown and not _is_cordoned(broker)
    ]


def _is_cordoned(broker: BrokerImage) -> bool:
    return bool(broker.directories) and set(broker.directories) <= set(broker.cordoned_directories)


def place_replicas(
    brokers: Iterable[BrokerImage], partitions: int, replication_factor: int, seed: int
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, its leader first. Raises KafkaError
    INVALID_REPLICATION_FACTOR if there are too few brokers."""
    usable = usable_brokers(brokers)
    _check_factor(usable, replication_factor)
    stripes = _Stripes(usable, _Lcg(seed & _MASK))
    return [stripes.place(replication_factor) for _ in range(partitions)]


def _check_factor(usable: list[BrokerImage], replication_factor: int) -> None:
    reason = None
    if replication_factor <= 0:
        reason = (
            f"Invalid replication factor {replication_factor}: the replication factor must "
            "be positive."
        )
    elif all(broker.fenced for broker in usable):
        reason = "All brokers are currently fenced, or have all their log directories cordoned."
    elif replication_factor > len(usable):
        reason = (
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {len(usable)} broker(s) are registered or some brokers have all their log "
            "directories cordoned."
        )
    if reason:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)


@dataclass(slots=True)
class _Lcg:
    """Pseudo-random numbers: a linear congruential generator with Knuth's constants."""

    state: int

    def below(self, bound: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & _MASK
        return (self.state >> 33) % bound

    def shuffle(self, items: MutableSequence[Any]) -> None:
        for last in range(len(items) - 1, 0, -1):
            chosen = self.below(last + 1)
            items[last], items[chosen] = items[chosen], items[last]


@dataclass(slots=True)
class _BrokerRing:
    """Brokers of one rack. Each is used once per partition. Leaders and followers rotate
    independently."""

    brokers: list[int]
    next_leader: int = 0
    next_follower: int = 0
    start: int = 0
    used: int = 0
    partition: int = 0

    def lead(self, partition: int) -> int:
        if not self.brokers:
            return NO_BROKER
        self._begin(partition, self.next_leader)
        self.next_leader += 1
        return self.follow(partition)

    def follow(self, partition: int) -> int:
        if self.partition != partition:
            self._begin(partition, self.next_follower)
            self.next_follower += 1
        if self.used >= len(self.brokers):
            return NO_BROKER
        self.used += 1
        return self.brokers[(self.start + self.used - 1) % len(self.brokers)]

    def _begin(self, partition: int, start: int) -> None:
        self.partition, self.start, self.used = partition, start, 0


class _Rack:
    def __init__(self, brokers: list[BrokerImage], random: _Lcg) -> None:
        self.active = _BrokerRing(sorted(broker.id for broker in brokers if not broker.fenced))
        self.fenced = _BrokerRing(sorted(broker.id for broker in brokers if broker.fenced))
        for ring in (self.active, self.fenced):
            ring.next_leader = ring.next_follower = (
                random.below(len(ring.brokers)) if ring.brokers else 0
            )

    def follow(self, partition: int) -> int:
        active = self.active.follow(partition)
        return active if active != NO_BROKER else self.fenced.follow(partition)


class _Stripes:
    def __init__(self, brokers: list[BrokerImage], random: _Lcg) -> None:
        names = sorted({broker.rack or "" for broker in brokers})
        self._racks = [
            _Rack([broker for broker in brokers if (broker.rack or "") == name], random)
            for name in names
        ]
        self._brokers_per_round = sum(not broker.fenced for broker in brokers)
        self._random = random
        self._first_rack = random.below(len(self._racks))
        self._partition = 0
        self._placed = 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        self._partition += 1
        if self._placed == self._brokers_per_round and self._brokers_per_round > 1:
            self._shuffle()
        order = [(self._first_rack + step) % len(self._racks) for step in range(len(self._racks))]
        leader_rack, leader = self._leader(order)
        replicas = [leader]
        # The leader's rack has a replica already: skip it once.
        is_skipped = False
        step = 0
        while len(replicas) < replication_factor:
            rack = order[step % len(order)]
            step += 1
            if rack == leader_rack and not is_skipped:
                is_skipped = True
            elif (broker := self._racks[rack].follow(self._partition)) != NO_BROKER:
                replicas.append(broker)
        self._placed += 1
        self._first_rack = (self._first_rack + 1) % len(self._racks)
        return tuple(replicas)

    def _leader(self, order: list[int]) -> tuple[int, int]:
        """Return the first rack with a broker that can lead, and the broker. `_check_factor`
        ensures that there is one."""
        leaders = ((rack, self._racks[rack].active.lead(self._partition)) for rack in order)
        return next((rack, broker) for rack, broker in leaders if broker != NO_BROKER)

    def _shuffle(self) -> None:
        self._placed = 0
        self._random.shuffle(self._racks)
        for rack in self._racks:
            self._random.shuffle(rack.active.brokers)
            self._random.shuffle(rack.fenced.brokers)
