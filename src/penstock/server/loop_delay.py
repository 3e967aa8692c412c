"""The delay of the event loop: how late a periodic timer fires.

Everything that blocks the loop delays every client, so this figure shows a stall anywhere in a
node. In a simulation no time passes while code runs: no timer is ever late, and after some the
measurement ends.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left

from penstock.metrics.histogram import SECONDS, Histogram
from penstock.server.clock_jumps import ClockJumps
from penstock.world import Clock

log = logging.getLogger(__name__)

INTERVAL_S = 0.01
# A delay above this is logged, but not more often than this.
LOG_ABOVE_S = 0.1
LOG_EVERY_S = 10.0
# A delay above this is always logged: the process was stopped, or something is very wrong.
LOG_ALWAYS_ABOVE_S = 2.0
# Delays are counted per millisecond, the resolution of timers; longer ones in the last count.
_LAST_MS = 1_000
# After this many timers without any delay, time is simulated.
_VIRTUAL_AFTER = 100


class LoopDelay:
    """Delays since `start`, in milliseconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jumps = ClockJumps(clock)
        self._counts = [0] * (_LAST_MS + 1)
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._fired = 0
        self._logged_at = -LOG_EVERY_S
        self.worst_ms = 0.0

    def start(self) -> None:
        self._due = self._clock.monotonic() + INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._fire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def percentile(self, percent: float) -> float:
        """Return a percentile of the delay, rounded up to a millisecond; 0 if nothing was
        measured."""
        rank, seen = sum(self._counts) * percent / 100, 0
        for milliseconds, count in enumerate(self._counts[:_LAST_MS]):
            seen += count
            if seen >= rank:
                return min(milliseconds + 1.0, self.worst_ms)
        return self.worst_ms

    def histogram(self) -> Histogram:
        """Return the delays, rounded up to a millisecond."""
        histogram = Histogram(SECONDS)
        for milliseconds, count in enumerate(self._counts):
            if count:
                delay_s = min(milliseconds + 1.0, self.worst_ms) / 1000
                histogram.counts[bisect_left(SECONDS, delay_s)] += count
                histogram.sum += delay_s * count
        return histogram

    def __str__(self) -> str:
        figures = " ".join(
            f"p{percent:g} {self.percentile(percent):.1f}" for percent in (50, 99, 99.9)
        )
        return f"{figures} worst {self.worst_ms:.1f} ms"

    def _fire(self) -> None:
        delay = max(0.0, self._clock.monotonic() - self._due)
        self._count(delay)
        self._jumps.check()
        if delay > LOG_ABOVE_S and (
            delay > LOG_ALWAYS_ABOVE_S or self._due - self._logged_at >= LOG_EVERY_S
        ):
            self._logged_at = self._due
            log.warning(
                "the event loop was blocked for %d ms, and all clients waited%s. Since the start: "
                "%s",
                delay * 1000,
                "; the process was stopped, or the machine is overloaded"
                if delay > LOG_ALWAYS_ABOVE_S
                else "",
                self,
            )
        self._fired += 1
        if self.worst_ms > 0 or self._fired < _VIRTUAL_AFTER:
            self.start()

    def _count(self, delay_s: float) -> None:
        """Count the delay, and those of the timers that would have fired meanwhile: a long stall is
        many late moments."""
        self.worst_ms = max(self.worst_ms, delay_s * 1000)
        self._counts[min(int(delay_s * 1000), _LAST_MS)] += 1
        for missed in range(1, min(int(delay_s / INTERVAL_S), _LAST_MS) + 1):
            self._counts[min(int((delay_s - missed * INTERVAL_S) * 1000), _LAST_MS)] += 1
