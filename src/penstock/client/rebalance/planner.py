"""Plans the moves that balance a cluster or drain brokers. PURE.

The steps, each of which keeps the rules of `assignment`:
1. Replicas: replicas of drained brokers, and of brokers with too many, move to brokers with too
   few. The bytes of these replicas are chosen so that the bytes come out even.
2. Bytes: moves and swaps between the fullest and the emptiest brokers (`bytes_balance`).
3. Leaders: the order of replicas (`leaders`).

A step runs only if a broker is outside the tolerance. It then aims at half of it, so that a cluster
whose load changes a little stays balanced. The same view gives the same plan.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Collection, Iterator
from itertools import accumulate

from penstock.client.rebalance.assignment import Assignment
from penstock.client.rebalance.bytes_balance import ByteBalance
from penstock.client.rebalance.leaders import LeaderBalance
from penstock.client.rebalance.model import (
    NEGLIGIBLE_BYTES,
    TOLERANCE,
    ClusterView,
    Load,
    Move,
    Plan,
    loads_of,
)
from penstock.client.rebalance.targets import (
    RackBounds,
    byte_range,
    integer_range,
    is_within,
    settle,
    settle_bytes,
    targets,
)
from penstock.ids import TopicPartition

_SHOWN_PROBLEMS = 5


def plan_rebalance(
    view: ClusterView,
    *,
    drain: Collection[int] = (),
    balance: bool = True,
    tolerance: float = TOLERANCE,
    negligible_bytes: int = NEGLIGIBLE_BYTES,
) -> Plan:
    """Return the moves that empty the drained brokers and, with `balance`, balance the others."""
    planner = _Planner(view, frozenset(drain), tolerance, negligible_bytes)
    if planner.brokers:
        planner.place_replicas(balance=balance)
        if balance:
            planner.balance_bytes()
        planner.balance_leaders(balance=balance)
    elif drain:
        planner.problems.append(
            "no broker is left that accepts replicas: add brokers, or uncordon some"
        )
    return planner.plan()


class _Planner:
    def __init__(
        self, view: ClusterView, drain: frozenset[int], tolerance: float, negligible_bytes: int
    ) -> None:
        self.view = view
        self.brokers = sorted(
            broker.id for broker in view.brokers if broker.accepts and broker.id not in drain
        )
        self.problems: list[str] = []
        self._drain = drain
        self._tolerance, self._goal = tolerance, tolerance / 2
        self._negligible = negligible_bytes
        self._assignment = Assignment(view)
        # Replicas that must move, as (partition, broker).
        self._drained = [
            (number, broker)
            for broker in sorted(drain & self._assignment.on.keys())
            for number in self._assignment.by_size(broker)
        ]
        if self.brokers:
            self._set_targets()

    def _set_targets(self) -> None:
        assignment = self._assignment
        racks: dict[str, list[int]] = {}
        for broker in self.brokers:
            racks.setdefault(assignment.racks[broker], []).append(broker)
        bounds = RackBounds({rack: len(brokers) for rack, brokers in racks.items()})
        movable = {*self.brokers, *self._drain}
        for number, replicas in enumerate(assignment.replicas):
            fixed = [broker for broker in replicas if broker not in movable]
            bounds.add(
                len(replicas) - len(fixed),
                assignment.spread(replicas) - assignment.spread(fixed),
                assignment.sizes[number],
            )
        drained_bytes = sum(assignment.sizes[number] for number, _ in self._drained)
        self._total = sum(map(assignment.count, self.brokers)) + len(self._drained)
        self._total_bytes = sum(assignment.bytes[b] for b in self.brokers) + drained_bytes
        self._targets = targets(self._total, racks, bounds.replicas())
        self._byte_targets = targets(self._total_bytes, racks, bounds.bytes())

    # Replicas

    def place_replicas(self, *, balance: bool) -> None:
        assignment = self._assignment
        counts = assignment.counts(self.brokers)
        ranges = {b: integer_range(self._targets[b], self._tolerance) for b in self.brokers}
        is_balanced = is_within((counts[b], ranges[b]) for b in self.brokers)
        if not self._drained and (is_balanced or not balance):
            return
        # Without `balance`, no other broker gives: each gets what brings it nearest to its target.
        settled = settle(counts, self._targets, self._goal, self._total)
        byte_goal = settle_bytes(
            {b: assignment.bytes[b] for b in self.brokers},
            {b: byte_range(self._byte_targets[b], self._goal, 0) for b in self.brokers},
            self._total_bytes,
        )
        needs = _Needs(
            assignment,
            {b: settled[b] - counts[b] for b in self.brokers if settled[b] > counts[b]},
            {b: byte_goal[b] - assignment.bytes[b] for b in self.brokers},
        )
        give = {b: counts[b] - settled[b] for b in self.brokers if counts[b] > settled[b]}
        self._place(needs, give if balance else {}, byte_goal)
        if balance:
            self._even_out_pairs()

    def _place(self, needs: _Needs, give: dict[int, int], byte_goal: dict[int, float]) -> None:
        """Place the drained replicas and those that brokers give, the largest first: the small ones
        then even out the bytes."""
        assignment = self._assignment
        orders: dict[int, list[int]] = {}
        windows: dict[int, range] = {}
        chosen = list(self._drained)
        for position, broker in enumerate(sorted(give)):
            order = orders[broker] = assignment.by_size(broker, position / len(give))
            sizes = [assignment.sizes[number] for number in order]
            excess = max(assignment.bytes[broker] - byte_goal[broker], 0.0)
            windows[broker] = window = _window(sizes, give[broker], excess)
            chosen += [(order[index], broker) for index in window]
        drained = set(self._drained)
        left = dict.fromkeys(give, 0)
        unplaced = []
        for number, broker in sorted(
            chosen, key=lambda item: (-assignment.sizes[item[0]], item[0], item[1])
        ):
            if needs.place(number, broker):
                continue
            if (number, broker) in drained:
                unplaced.append((number, broker))
            else:
                left[broker] += 1
        for number, broker in unplaced:
            self._place_anywhere(number, broker)
        for broker, missing in left.items():
            for number in _around(orders[broker], windows[broker]):
                if not missing or not needs.any:
                    break
                missing -= needs.place(number, broker)

    def _place_anywhere(self, number: int, source: int) -> None:
        """Move a drained replica although no broker needs one, and in spite of its rack if there is
        no other way."""
        assignment = self._assignment
        replicas = assignment.replicas[number]
        free = [broker for broker in self.brokers if broker not in replicas]
        allowed = [broker for broker in free if assignment.can_move(number, source, broker)] or free
        partition = self.view.partitions[number]
        name = f"{partition.topic}-{partition.partition}"
        if not allowed:
            self.problems.append(
                f"{name} has {len(replicas)} replicas, and no other broker accepts one: it stays "
                f"on broker {source}"
            )
            return
        target = min(
            allowed,
            key=lambda broker: (assignment.count(broker) / max(self._targets[broker], 1), broker),
        )
        if not assignment.can_move(number, source, target):
            self.problems.append(
                f"{name} will be in fewer racks: no broker of another rack accepts its replica"
            )
        assignment.move(number, source, target)

    def _even_out_pairs(self) -> None:
        """Move single replicas between brokers that the first pass left outside the goal: there,
        the brokers with too few replicas could not take those of the brokers with too many."""
        assignment = self._assignment
        # The replicas of a source that a target may still take; a pair is looked through once.
        candidates: dict[tuple[int, int], Iterator[int]] = {}
        stuck: set[tuple[int, int]] = set()
        while True:
            excess = {
                broker: assignment.count(broker) - self._targets[broker] for broker in self.brokers
            }
            pair = self._worst_pair(excess, stuck)
            if pair is None:
                return
            source, target = pair
            if pair not in candidates:
                candidates[pair] = iter(assignment.by_size(source))
            for number in candidates[pair]:
                if number in assignment.on[source] and assignment.can_move(number, source, target):
                    assignment.move(number, source, target)
                    break
            else:
                stuck.add(pair)

    def _worst_pair(
        self, excess: dict[int, float], stuck: set[tuple[int, int]]
    ) -> tuple[int, int] | None:
        order = sorted(self.brokers, key=lambda broker: (-excess[broker], broker))
        outside = {broker for broker in order if not self._is_at_goal(broker)}
        if not outside:
            return None
        for source in order:
            for target in reversed(order):
                if excess[source] - excess[target] <= 1:
                    break
                if (source in outside or target in outside) and (source, target) not in stuck:
                    return source, target
        return None

    def _is_at_goal(self, broker: int) -> bool:
        least, most = integer_range(self._targets[broker], self._goal)
        return least <= self._assignment.count(broker) <= most

    # Bytes and leaders

    def balance_bytes(self) -> None:
        ranges, goals = (
            {
                broker: byte_range(self._byte_targets[broker], share, self._negligible)
                for broker in self.brokers
            }
            for share in (self._tolerance, self._goal)
        )
        if is_within((self._assignment.bytes[b], ranges[b]) for b in self.brokers):
            return
        replica_ranges = {
            broker: integer_range(self._targets[broker], self._goal) for broker in self.brokers
        }
        ByteBalance(self._assignment, self._byte_targets, goals, replica_ranges).balance()

    def balance_leaders(self, *, balance: bool) -> None:
        """Without `balance`, only partitions that move get another preferred leader."""
        moved = None if balance else [number for number, _after in self._assignment.changed()]
        LeaderBalance(self._assignment, self.brokers, moved).balance(self._tolerance, self._goal)

    # Result

    def plan(self) -> Plan:
        view = self.view
        partitions = list(view.partitions)
        moves = []
        for number, replicas in self._assignment.changed():
            partition = partitions[number]
            moves.append(
                Move(
                    TopicPartition(partition.topic, partition.partition),
                    partition.replicas,
                    replicas,
                    partition.size,
                )
            )
            partitions[number] = partition._replace(replicas=replicas)
        problems = self.problems[:_SHOWN_PROBLEMS]
        if len(self.problems) > _SHOWN_PROBLEMS:
            problems.append(f"and {len(self.problems) - _SHOWN_PROBLEMS} more")
        before = loads_of(view.brokers, view.partitions)
        # A broker that is not registered has no load after its replicas have moved.
        after = {broker: Load() for broker in before}
        return Plan(
            tuple(moves),
            before,
            after | loads_of(view.brokers, partitions, preferred=True),
            tuple(
                TopicPartition(partition.topic, partition.partition)
                for partition in partitions
                if partition.replicas[0] != partition.leader
            ),
            tuple(problems),
        )


class _Needs:
    """The brokers that need replicas, those that need the most bytes first."""

    def __init__(
        self, assignment: Assignment, replicas: dict[int, int], byte_needs: dict[int, float]
    ) -> None:
        self._assignment = assignment
        self._replicas = replicas
        self._bytes = byte_needs
        self._heap = [self._entry(broker) for broker in replicas]
        heapq.heapify(self._heap)

    @property
    def any(self) -> bool:
        return bool(self._heap)

    def _entry(self, broker: int) -> tuple[float, int, int]:
        return -self._bytes[broker], -self._replicas[broker], broker

    def place(self, number: int, source: int) -> bool:
        """Move the replica to the first broker that may take it."""
        refused = []
        is_placed = False
        while self._heap and not is_placed:
            entry = heapq.heappop(self._heap)
            broker = entry[2]
            if not self._assignment.can_move(number, source, broker):
                refused.append(entry)
                continue
            self._assignment.move(number, source, broker)
            self._replicas[broker] -= 1
            self._bytes[broker] -= self._assignment.sizes[number]
            if self._replicas[broker]:
                heapq.heappush(self._heap, self._entry(broker))
            is_placed = True
        for entry in refused:
            heapq.heappush(self._heap, entry)
        return is_placed


def _window(sizes: list[int], length: int, wanted: float) -> range:
    """Return the consecutive positions whose sizes, which ascend, have the sum nearest above
    `wanted`."""
    sums = [0, *accumulate(sizes)]
    last = len(sizes) - length
    starts = range(last + 1)
    start = min(bisect_left(starts, wanted, key=lambda i: sums[i + length] - sums[i]), last)
    return range(start, start + length)


def _around(order: list[int], window: range) -> Iterator[int]:
    """Yield what is outside the window, the nearest first."""
    below, above = window.start - 1, window.stop
    while below >= 0 or above < len(order):
        if above < len(order):
            yield order[above]
            above += 1
        if below >= 0:
            yield order[below]
            below -= 1
