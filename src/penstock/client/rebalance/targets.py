"""How much each broker should carry. PURE.

Without racks the target of every broker is the mean. A partition that is spread over several racks
stays so, which bounds what a rack can carry: the target of a small rack's brokers may then be above
the mean, and that of the others below it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor
from typing import NamedTuple

_BISECTIONS = 60


class Bounds(NamedTuple):
    least: float
    most: float


class RackBounds:
    """Collects what each rack must and can carry, given the spread of every partition."""

    def __init__(self, brokers_per_rack: Mapping[str, int]) -> None:
        self._brokers = brokers_per_rack
        # (replicas, racks that they must be in) -> how many partitions there are, and their bytes.
        self._partitions: Counter[tuple[int, int]] = Counter()
        self._bytes: Counter[tuple[int, int]] = Counter()

    def add(self, replicas: int, racks: int, size: int) -> None:
        self._partitions[replicas, racks] += 1
        self._bytes[replicas, racks] += size

    def replicas(self) -> dict[str, Bounds]:
        return self._bounds(self._partitions)

    def bytes(self) -> dict[str, Bounds]:
        return self._bounds(self._bytes)

    def _bounds(self, weights: Mapping[tuple[int, int], int]) -> dict[str, Bounds]:
        total = sum(self._brokers.values())
        bounds = {}
        for rack, brokers in self._brokers.items():
            least = most = 0
            for (replicas, racks), weight in weights.items():
                elsewhere = total - brokers
                needed = 1 if racks >= len(self._brokers) else 0
                least += weight * min(max(needed, replicas - elsewhere), brokers)
                most += weight * min(max(replicas - max(racks - 1, 0), 0), brokers)
            bounds[rack] = Bounds(min(least, most), max(least, most))
        return bounds


def targets(
    total: float, racks: Mapping[str, Sequence[int]], bounds: Mapping[str, Bounds]
) -> dict[int, float]:
    """Return the target of each broker: the same level everywhere, except in racks whose bounds
    are below or above it."""

    def level_of(rack: str, level: float) -> float:
        brokers = len(racks[rack])
        return min(max(level, bounds[rack].least / brokers), bounds[rack].most / brokers)

    low, high = 0.0, max(total, 1.0)
    for _ in range(_BISECTIONS):
        level = (low + high) / 2
        if sum(level_of(rack, level) * len(racks[rack]) for rack in racks) < total:
            low = level
        else:
            high = level
    return {broker: level_of(rack, high) for rack, brokers in racks.items() for broker in brokers}


def integer_range(target: float, tolerance: float) -> tuple[int, int]:
    """Return the numbers within the tolerance; the two next to the target always are."""
    return (
        min(ceil(target * (1 - tolerance) - 1e-9), floor(target + 1e-9)),
        max(floor(target * (1 + tolerance) + 1e-9), ceil(target - 1e-9)),
    )


def byte_range(target: float, tolerance: float, negligible: int) -> tuple[float, float]:
    slack = max(target * tolerance, negligible)
    return target - slack, target + slack


def is_within(values: Iterable[tuple[float, tuple[float, float]]]) -> bool:
    return all(low <= value <= high for value, (low, high) in values)


def settle(
    current: Mapping[int, int], target: Mapping[int, float], tolerance: float, total: int
) -> dict[int, int]:
    """Return the numbers within the tolerance that are nearest to the current ones, and whose sum
    is `total`."""
    ranges = {key: integer_range(target[key], tolerance) for key in target}
    settled = {key: min(max(current[key], ranges[key][0]), ranges[key][1]) for key in target}
    missing = total - sum(settled.values())
    step = 1 if missing > 0 else -1
    heap = [
        (step * (settled[key] + step) / max(target[key], 1e-9), key)
        for key in target
        if _has_room(settled[key], ranges[key], step)
    ]
    heapq.heapify(heap)
    for _ in range(abs(missing)):
        if not heap:
            break
        _, key = heapq.heappop(heap)
        settled[key] += step
        if _has_room(settled[key], ranges[key], step):
            level = step * (settled[key] + step) / max(target[key], 1e-9)
            heapq.heappush(heap, (level, key))
    return settled


def _has_room(value: int, bounds: tuple[int, int], step: int) -> bool:
    return value < bounds[1] if step > 0 else value > bounds[0]


def settle_bytes(
    current: Mapping[int, int], ranges: Mapping[int, tuple[float, float]], total: float
) -> dict[int, float]:
    """As `settle`, for bytes: what is missing or too much is shared in proportion to the room that
    each broker has."""
    settled = {key: min(max(float(current[key]), low), high) for key, (low, high) in ranges.items()}
    missing = total - sum(settled.values())
    rooms = {
        key: (high - settled[key] if missing > 0 else settled[key] - low)
        for key, (low, high) in ranges.items()
    }
    room = sum(rooms.values())
    if room <= 0:
        return settled
    share = min(abs(missing) / room, 1.0) * (1 if missing > 0 else -1)
    return {key: settled[key] + rooms[key] * share for key in settled}
