"""A histogram with fixed buckets, cheap enough for every request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

# Bounds of durations in seconds. Kafka's percentiles are computed from such buckets by
# histogram_quantile().
SECONDS: tuple[float, ...] = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)


class Histogram:
    """`counts` has one entry per bound, and a last one for larger values. They do not include those
    of smaller buckets, as Prometheus's do."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
