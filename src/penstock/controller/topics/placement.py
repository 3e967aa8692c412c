"""Which brokers get the replicas of new partitions: Kafka's striped placement. PURE.

Leaders go round the racks, and round the brokers of each; followers go to the racks that follow. So
leaders and replicas are spread evenly, and no rack holds two replicas while another has room.
Fenced brokers are a last resort, and never lead. After each round over the brokers their order is
shuffled, so that the followers of one leader differ. Rng comes in as a seed: the same seed, the
same places.
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
    """Those that may be given something new, fenced ones included."""
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
    """The replicas of each partition, its leader first. KafkaError INVALID_REPLICATION_FACTOR where
    there are too few brokers."""
    usable = usable_brokers(brokers)
    _check_factor(usable, replication_factor)
    stripes = _Stripes(usable, _Draws(seed & _MASK))
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
            f"only {len(usable)} broker(s) are registered "
            "or some brokers have all their log directories cordoned."
        )
    if reason:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)


@dataclass(slots=True)
class _Draws:
    """Numbers that look random, from a seed: a linear congruential generator with Knuth's
    factors."""

    state: int

    def below(self, bound: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & _MASK
        return (self.state >> 33) % bound

    def shuffle(self, items: MutableSequence[Any]) -> None:
        for last in range(len(items) - 1, 0, -1):
            chosen = self.below(last + 1)
            items[last], items[chosen] = items[chosen], items[last]


@dataclass(slots=True)
class _Ring:
    """Brokers of one rack. Within a turn each is given once; those that lead and those that only
    follow have a round of their own."""

    brokers: list[int]
    led: int = 0
    followed: int = 0
    start: int = 0
    given: int = 0
    turn: int = 0

    def lead(self, turn: int) -> int:
        if not self.brokers:
            return NO_BROKER
        self._begin(turn, self.led)
        self.led += 1
        return self.follow(turn)

    def follow(self, turn: int) -> int:
        if self.turn != turn:
            self._begin(turn, self.followed)
            self.followed += 1
        if self.given >= len(self.brokers):
            return NO_BROKER
        self.given += 1
        return self.brokers[(self.start + self.given - 1) % len(self.brokers)]

    def _begin(self, turn: int, start: int) -> None:
        self.turn, self.start, self.given = turn, start, 0


class _Rack:
    def __init__(self, brokers: list[BrokerImage], draws: _Draws) -> None:
        self.active = _Ring(sorted(broker.id for broker in brokers if not broker.fenced))
        self.fenced = _Ring(sorted(broker.id for broker in brokers if broker.fenced))
        for ring in (self.active, self.fenced):
            ring.led = ring.followed = draws.below(len(ring.brokers)) if ring.brokers else 0

    def follow(self, turn: int) -> int:
        active = self.active.follow(turn)
        return active if active != NO_BROKER else self.fenced.follow(turn)


class _Stripes:
    def __init__(self, brokers: list[BrokerImage], draws: _Draws) -> None:
        names = sorted({broker.rack or "" for broker in brokers})
        self._racks = [
            _Rack([broker for broker in brokers if (broker.rack or "") == name], draws)
            for name in names
        ]
        self._round = sum(not broker.fenced for broker in brokers)
        self._draws = draws
        self._first_rack = draws.below(len(self._racks))
        self._turn = 0
        self._placed = 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        self._turn += 1
        if self._placed == self._round and self._round > 1:
            self._shuffle()
        order = [(self._first_rack + step) % len(self._racks) for step in range(len(self._racks))]
        led = self._leader(order)
        replicas = [led[1]]
        # The leader's rack has its replica already: it is passed over once.
        passed = False
        step = 0
        while len(replicas) < replication_factor:
            rack = order[step % len(order)]
            step += 1
            if rack == led[0] and not passed:
                passed = True
            elif (broker := self._racks[rack].follow(self._turn)) != NO_BROKER:
                replicas.append(broker)
        self._placed += 1
        self._first_rack = (self._first_rack + 1) % len(self._racks)
        return tuple(replicas)

    def _leader(self, order: list[int]) -> tuple[int, int]:
        """The first rack that has a broker to lead, and the broker. There is one: `_check_factor`
        saw to it."""
        found = ((rack, self._racks[rack].active.lead(self._turn)) for rack in order)
        return next((rack, broker) for rack, broker in found if broker != NO_BROKER)

    def _shuffle(self) -> None:
        self._placed = 0
        self._draws.shuffle(self._racks)
        for rack in self._racks:
            self._draws.shuffle(rack.active.brokers)
            self._draws.shuffle(rack.fenced.brokers)
