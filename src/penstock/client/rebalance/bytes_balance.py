"""Balances the bytes of brokers by moves and swaps of replicas that keep their numbers balanced.
PURE."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping

from penstock.client.rebalance.assignment import Assignment

# Candidates that are tried per pair of brokers and step: those of the best size may not fit.
_TRIES = 24


class ByteBalance:
    """Moves bytes from the fullest to the emptiest broker until all are within their range."""

    def __init__(
        self,
        assignment: Assignment,
        target: Mapping[int, float],
        ranges: Mapping[int, tuple[float, float]],
        replica_ranges: Mapping[int, tuple[int, int]],
    ) -> None:
        self._assignment = assignment
        self._target = target
        self._ranges = ranges
        self._replica_ranges = replica_ranges
        # How often each broker has changed, and the pairs that did not help, with these numbers.
        self._changes = dict.fromkeys(target, 0)
        self._failed: dict[tuple[int, int], tuple[int, int]] = {}
        self._by_size = {
            broker: sorted((assignment.sizes[number], number) for number in assignment.on[broker])
            for broker in target
        }

    def balance(self) -> None:
        # Every step reduces the sum of the deviations; the bound only limits the time.
        for _ in range(max(1_000, sum(map(len, self._by_size.values())))):
            if not self._step():
                return

    def _step(self) -> bool:
        """Improve one pair of brokers. False if all are within their range or nothing helps."""
        excess = {
            broker: self._assignment.bytes[broker] - target
            for broker, target in self._target.items()
        }
        order = sorted(excess, key=lambda broker: (-excess[broker], broker))
        outside = {broker for broker in order if not self._is_within(broker)}
        if not outside:
            return False
        for full in order:
            for empty in reversed(order):
                if excess[full] <= 0 or excess[empty] >= 0:
                    break
                if (full in outside or empty in outside) and self._even_out(
                    full, empty, min(excess[full], -excess[empty])
                ):
                    return True
        return False

    def _is_within(self, broker: int) -> bool:
        low, high = self._ranges[broker]
        return low <= self._assignment.bytes[broker] <= high

    def _even_out(self, full: int, empty: int, wanted: float) -> bool:
        """Transfer about `wanted` bytes by a move or, if that unbalances the replicas, a swap."""
        changes = self._changes[full], self._changes[empty]
        if self._failed.get((full, empty)) == changes:
            return False
        if self._move(full, empty, wanted) or self._swap(full, empty, wanted):
            return True
        self._failed[full, empty] = changes
        return False

    def _move(self, full: int, empty: int, wanted: float) -> bool:
        assignment = self._assignment
        if (
            assignment.count(full) <= self._replica_ranges[full][0]
            or assignment.count(empty) >= self._replica_ranges[empty][1]
        ):
            return False
        chosen = self._fitting(full, empty, wanted, lambda _number: True)
        if chosen is None:
            return False
        self._transfer(chosen, full, empty)
        return True

    def _swap(self, full: int, empty: int, wanted: float) -> bool:
        """Swap a large replica for a small one; the smallest first, as they cost the least."""
        for size, other in self._by_size[empty][:_TRIES]:

            def fits(number: int, other: int = other) -> bool:
                return number != other and self._assignment.can_swap(number, full, other, empty)

            if self._assignment.can_move(other, empty, full):
                chosen = self._fitting(full, empty, wanted, fits, more_than=size)
                if chosen is not None:
                    self._transfer(chosen, full, empty)
                    self._transfer(other, empty, full)
                    return True
        return False

    def _fitting(
        self,
        full: int,
        empty: int,
        wanted: float,
        fits: Callable[[int], bool],
        more_than: int = 0,
    ) -> int | None:
        """Return a replica of the full broker that is larger than `more_than` by about `wanted`
        bytes, and by less than twice that."""
        candidates = self._by_size[full]
        middle = bisect_left(candidates, (more_than + int(wanted) + 1, -1))
        for position in range(middle - 1, max(middle - 1 - _TRIES, -1), -1):
            size, number = candidates[position]
            if size <= more_than:
                break
            if self._assignment.can_move(number, full, empty) and fits(number):
                return number
        for size, number in candidates[middle : middle + _TRIES]:
            if size - more_than >= 2 * wanted:
                break
            if self._assignment.can_move(number, full, empty) and fits(number):
                return number
        return None

    def _transfer(self, number: int, source: int, target: int) -> None:
        entry = (self._assignment.sizes[number], number)
        entries = self._by_size[source]
        del entries[bisect_left(entries, entry)]
        insort(self._by_size[target], entry)
        self._assignment.move(number, source, target)
        self._changes[source] += 1
        self._changes[target] += 1
