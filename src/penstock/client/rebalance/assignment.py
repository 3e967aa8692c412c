"""The assignment that a plan changes step by step, and the rules that every step keeps. PURE."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from zlib import crc32

from penstock.client.rebalance.model import ClusterView, PartitionView

_HASHES = 1 << 32


class Assignment:
    """Replicas per partition, and the loads of all brokers. Partitions are numbers: positions in
    the view's list."""

    def __init__(self, view: ClusterView) -> None:
        self.partitions: Sequence[PartitionView] = view.partitions
        self.replicas = [list(partition.replicas) for partition in view.partitions]
        self.sizes = [partition.size for partition in view.partitions]
        self.racks = {broker.id: broker.rack or "" for broker in view.brokers}
        self._one_rack = len(set(self.racks.values())) <= 1
        self.on: dict[int, set[int]] = {broker.id: set() for broker in view.brokers}
        self.bytes: dict[int, int] = dict.fromkeys(self.on, 0)
        for number, replicas in enumerate(self.replicas):
            for broker in replicas:
                if broker not in self.on:
                    self.on[broker], self.bytes[broker] = set(), 0
                self.on[broker].add(number)
                self.bytes[broker] += self.sizes[number]

    def count(self, broker: int) -> int:
        return len(self.on[broker])

    def counts(self, brokers: Collection[int]) -> dict[int, int]:
        return {broker: len(self.on[broker]) for broker in brokers}

    def spread(self, replicas: Sequence[int]) -> int:
        """Return the number of racks of these brokers; 0 for none, and without racks."""
        if self._one_rack:
            return 0
        return len({self.racks.get(broker, "") for broker in replicas})

    def can_move(self, number: int, source: int, target: int) -> bool:
        """Return True if the replica may move: no broker gets two replicas of a partition, and the
        partition is not in fewer racks than before."""
        replicas = self.replicas[number]
        if target in replicas:
            return False
        if self._one_rack:
            return True
        racks = self.racks
        rack = racks.get(target, "")
        others = {racks.get(broker, "") for broker in replicas if broker != source}
        return rack not in others or racks.get(source, "") in others

    def can_swap(self, number: int, source: int, other: int, target: int) -> bool:
        """Return True if `number` may move from source to target, and `other` back."""
        return self.can_move(number, source, target) and self.can_move(other, target, source)

    def move(self, number: int, source: int, target: int) -> None:
        """Replace a replica. The new one takes its position, and so its preferred leadership."""
        replicas = self.replicas[number]
        replicas[replicas.index(source)] = target
        self.on[source].remove(number)
        self.on[target].add(number)
        self.bytes[source] -= self.sizes[number]
        self.bytes[target] += self.sizes[number]

    def by_size(self, broker: int, turn: float = 0.0) -> list[int]:
        """Return the broker's partitions by size. Equal ones are in the order of a hash of their
        name, which spreads a choice over all topics; `turn`, a part of 1, rotates that order, so
        that brokers choose different partitions."""
        offset = int(turn * _HASHES)

        def key(number: int) -> tuple[int, int, int]:
            partition = self.partitions[number]
            name = f"{partition.topic}-{partition.partition}".encode()
            return self.sizes[number], (crc32(name) + offset) % _HASHES, number

        return sorted(self.on[broker], key=key)

    def changed(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        for number, replicas in enumerate(self.replicas):
            after = tuple(replicas)
            if after != self.partitions[number].replicas:
                yield number, after
