"""The values of a rebalance: the cluster as observed, and the plan of moves. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.ids import TopicPartition

# A broker is balanced if its replicas, leaders and bytes deviate from their targets by this share
# at most.
TOLERANCE = 0.10
# Byte deviations below this are not worth a move.
NEGLIGIBLE_BYTES = 1 << 20


class BrokerView(NamedTuple):
    """A registered broker. Only a broker that `accepts` replicas is balanced: a fenced or cordoned
    one keeps what it has, unless it is drained."""

    id: int
    rack: str | None = None
    accepts: bool = True
    state: str = "live"


class PartitionView(NamedTuple):
    """A partition. The first replica is the preferred leader. `size` is that of one replica."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    leader: int
    size: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    brokers: tuple[BrokerView, ...]
    partitions: Sequence[PartitionView]

    def broker(self, broker_id: int) -> BrokerView | None:
        return next((broker for broker in self.brokers if broker.id == broker_id), None)


class Move(NamedTuple):
    """A new assignment of one partition. `size` is the bytes that each added replica copies."""

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.before if broker not in self.after)

    @property
    def bytes(self) -> int:
        return self.size * len(self.adding)


@dataclass(slots=True)
class Load:
    """What a broker or a rack carries."""

    replicas: int = 0
    leaders: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """`before` and `after` are the loads of each broker. `after` counts preferred leaders: the
    rebalance ends with their election. `problems` says what could not be planned, and why."""

    moves: tuple[Move, ...]
    before: Mapping[int, Load]
    after: Mapping[int, Load]
    elections: tuple[TopicPartition, ...] = ()
    problems: tuple[str, ...] = field(default=())

    @property
    def bytes(self) -> int:
        return sum(move.bytes for move in self.moves)

    @property
    def replicas(self) -> int:
        return sum(len(move.adding) for move in self.moves)


def loads_of(
    brokers: Iterable[BrokerView], partitions: Iterable[PartitionView], *, preferred: bool = False
) -> dict[int, Load]:
    """Return the load of each broker, including those that only replicas name. With `preferred`,
    the first replica counts as the leader."""
    loads = {broker.id: Load() for broker in brokers}
    for partition in partitions:
        for replica in partition.replicas:
            load = loads.get(replica)
            if load is None:
                load = loads[replica] = Load()
            load.replicas += 1
            load.bytes += partition.size
        leader = partition.replicas[0] if preferred else partition.leader
        if leader in loads:
            loads[leader].leaders += 1
    return loads


def rack_loads(brokers: Iterable[BrokerView], loads: Mapping[int, Load]) -> dict[str, Load]:
    """Return the sum of the loads of each rack's brokers; "" stands for no rack."""
    racks: dict[str, Load] = {}
    names = {broker.id: broker.rack or "" for broker in brokers}
    for broker_id, load in loads.items():
        rack = racks.setdefault(names.get(broker_id, ""), Load())
        rack.replicas += load.replicas
        rack.leaders += load.leaders
        rack.bytes += load.bytes
    return racks
