"""Balances preferred leaders by the order of replicas, which moves no bytes. PURE.

A leadership moves along an edge: from the preferred leader of a partition to another of its
replicas. A broker that leads too much may share no partition with one that leads too little, so
leaderships move along paths of edges, as in a flow network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from itertools import pairwise

from penstock.client.rebalance.assignment import Assignment
from penstock.client.rebalance.targets import integer_range


class LeaderBalance:
    """Preferred leaders of the brokers that take part, and which of them can be passed on: those of
    all partitions, or of the given ones."""

    def __init__(
        self,
        assignment: Assignment,
        brokers: Collection[int],
        partitions: Collection[int] | None = None,
    ) -> None:
        self._assignment = assignment
        self._brokers = sorted(brokers)
        member = set(brokers)
        passable = None if partitions is None else set(partitions)
        self.leads = dict.fromkeys(self._brokers, 0)
        # Leader -> replica -> partitions. Partitions that have another leader by now are dropped
        # when they are met.
        self._edges: dict[int, dict[int, list[int]]] = {broker: {} for broker in self._brokers}
        for number, replicas in enumerate(assignment.replicas):
            if replicas[0] in member:
                self.leads[replicas[0]] += 1
                if passable is None or number in passable:
                    self._add_edges(number)

    def _add_edges(self, number: int) -> None:
        leader, *followers = self._assignment.replicas[number]
        for follower in followers:
            if follower in self.leads:
                self._edges[leader].setdefault(follower, []).append(number)

    def balance(self, tolerance: float, goal: float) -> None:
        """Bring all brokers within `goal` if one of them is not within `tolerance`."""
        mean = sum(self.leads.values()) / max(len(self.leads), 1)
        least, most = integer_range(mean, tolerance)
        if all(least <= leads <= most for leads in self.leads.values()):
            return
        least, most = integer_range(mean, goal)
        for broker in sorted(self._brokers, key=lambda broker: (-self.leads[broker], broker)):
            while self.leads[broker] > most and self._shed(broker, least, most):
                pass
        for broker in sorted(self._brokers, key=lambda broker: (self.leads[broker], broker)):
            while self.leads[broker] < least and self._gain(broker, least):
                pass

    def _shed(self, broker: int, least: int, most: int) -> bool:
        """Pass leaderships of an overloaded broker on. False if no path leads to a broker with
        room."""
        path = self._path(broker, lambda other: self.leads[other] < least) or self._path(
            broker, lambda other: self.leads[other] < most
        )
        if path is None:
            return False
        room = most - self.leads[path[-1]]
        return self._pass_along(path, min(self.leads[broker] - most, room))

    def _gain(self, broker: int, least: int) -> bool:
        """Get leaderships from another broker. False if no path leads from one that can give."""
        givers = sorted(
            (other for other in self._brokers if self.leads[other] > least),
            key=lambda other: (-self.leads[other], other),
        )
        for giver in givers:
            path = self._path(giver, lambda other: other == broker)
            if path is not None:
                room = max((self.leads[giver] - least + 1) // 2, 1)
                return self._pass_along(path, min(least - self.leads[broker], room))
        return False

    def _path(self, source: int, is_end: Callable[[int], bool]) -> list[int] | None:
        """Return the shortest path of edges from the source to an end."""
        came_from = {source: source}
        queue = deque([source])
        while queue:
            broker = queue.popleft()
            for follower in sorted(
                self._edges[broker], key=lambda other: (self.leads[other], other)
            ):
                if follower in came_from or not self._has_partition(broker, follower):
                    continue
                came_from[follower] = broker
                if is_end(follower):
                    path = [follower]
                    while path[-1] != source:
                        path.append(came_from[path[-1]])
                    return path[::-1]
                queue.append(follower)
        return None

    def _has_partition(self, leader: int, follower: int) -> bool:
        """Drop outdated partitions from the end of the edge's list; False if none is left."""
        numbers = self._edges[leader][follower]
        while numbers:
            replicas = self._assignment.replicas[numbers[-1]]
            if replicas[0] == leader and follower in replicas:
                return True
            numbers.pop()
        return False

    def _pass_along(self, path: list[int], amount: int) -> bool:
        """Pass up to `amount` leaderships from the start of a path to its end."""
        passed = False
        for _ in range(max(amount, 1)):
            if not all(
                self._has_partition(leader, follower) for leader, follower in pairwise(path)
            ):
                break
            # From the end to the start: no broker of the path passes on what it just got.
            for leader, follower in reversed(list(pairwise(path))):
                self._lead(self._edges[leader][follower].pop(), follower)
            passed = True
        return passed

    def _lead(self, number: int, leader: int) -> None:
        replicas = self._assignment.replicas[number]
        position = replicas.index(leader)
        self.leads[replicas[0]] -= 1
        self.leads[leader] += 1
        replicas[0], replicas[position] = leader, replicas[0]
        self._add_edges(number)
