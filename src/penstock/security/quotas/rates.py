"""Rates over windows of time, and token buckets: how Kafka measures quotas. PURE.

A `WindowedRate` adds values up in samples, each of which covers a window of time from its first
value on. The rate is the sum of the samples that reach into the last `number` windows, over the
time since the oldest of them began. That time is at least `number - 1` windows, and what has
passed of the last one: the first values of a client do not look like a high rate.

A client above its quota is throttled for the time after which the same sum would be within it. If O
is the observed rate over a span W, and T the quota, then O * W / (W + X) = T, so that
X = (O - T) / T * W.

A `TokenBucket` fills at the rate of the quota, up to what `number` windows would allow (KIP-599).
Below zero the quota is exceeded. Unlike the rate it lets a burst pass, and remembers no single
large value for longer than the quota needs to make up for it.

Times are milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections import deque
from math import floor
from typing import NamedTuple

# A throttle time is an int32 of the protocol.
MAX_THROTTLE_MS = 2**31 - 1


class Windows(NamedTuple):
    """Kafka's quota.window.num and quota.window.size.seconds."""

    number: int = 11
    size_ms: int = 1_000

    @property
    def total_ms(self) -> int:
        return self.number * self.size_ms


class WindowedRate:
    """Kafka's `Rate` of a `WindowedSum`. `owed_until` is the time at which a single value that is
    larger than all windows allow is made up for; Kafka never admits such a value."""

    __slots__ = ("_samples", "owed_until")

    def __init__(self) -> None:
        self.owed_until = 0
        # Beginning, time of the last value, and sum of each, the oldest first. One may overlap the
        # beginning of the windows, so there is one more than windows.
        self._samples: deque[list[float]] = deque()

    def record(self, value: float, now: int, windows: Windows) -> None:
        samples = self._samples
        if not samples or now - samples[-1][0] >= windows.size_ms:
            if len(samples) > windows.number:
                samples.popleft()
            samples.append([now, now, value])
            return
        last = samples[-1]
        last[1] = now
        last[2] += value

    def is_idle(self, now: int, windows: Windows) -> bool:
        """Return True if no value counts any more: the rate is that of a new one."""
        return now >= self.owed_until and (
            not self._samples or now - self._samples[-1][1] >= windows.total_ms
        )

    def observed(self, now: int, windows: Windows) -> tuple[float, int]:
        """Return the rate per second, and the span over which it is measured."""
        samples = self._samples
        while samples and now - samples[0][1] >= windows.total_ms:
            samples.popleft()
        span = int(now - samples[0][0]) if samples else 0
        span += max(0, windows.number - 1 - span // windows.size_ms) * windows.size_ms
        span = max(span, 1)
        return sum(sample[2] for sample in samples) * 1000 / span, span

    def throttle_ms(self, bound: float, now: int, windows: Windows) -> int:
        """Return the time after which the rate is within the bound, 0 if it is."""
        rate, span = self.observed(now, windows)
        if rate <= bound:
            return 0
        return rounded_ms((rate - bound) / bound * span)


class TokenBucket:
    """Kafka's `TokenBucket`. It begins full."""

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: float, now: int, windows: Windows) -> None:
        self._rate = rate
        self._tokens = _burst(rate, windows)
        self._at = now

    def available(self, rate: float, now: int, windows: Windows) -> float:
        """Return the tokens, which are below zero if the quota is exceeded."""
        self._tokens = min(
            _burst(rate, windows), self._tokens + rate * max(0, now - self._at) / 1000
        )
        self._at, self._rate = now, rate
        return self._tokens

    def take(self, value: float, rate: float, now: int, windows: Windows) -> None:
        self._tokens = self.available(rate, now, windows) - value

    def throttle_ms(self, rate: float, now: int, windows: Windows) -> int:
        tokens = self.available(rate, now, windows)
        return rounded_ms(-tokens / rate * 1000) if tokens < 0 else 0

    def is_idle(self, now: int, windows: Windows) -> bool:
        """Return True if the bucket is full: it is as a new one."""
        return self.available(self._rate, now, windows) >= _burst(self._rate, windows)


def rounded_ms(value: float) -> int:
    """Round as Java does, and within the range of a throttle time."""
    return min(floor(value + 0.5), MAX_THROTTLE_MS) if value < MAX_THROTTLE_MS else MAX_THROTTLE_MS


def _burst(rate: float, windows: Windows) -> float:
    return rate * windows.total_ms / 1000
