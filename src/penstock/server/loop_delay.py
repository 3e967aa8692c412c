"""How late the event loop is: how long after its time a timer fires that is set again and again.

Whatever holds up the loop holds up every client, so this is the one figure that tells of a stall
anywhere in a node. In a simulation time stands still while code runs: nothing is ever late, and the
timer is given up. It must never know what the loop does.
"""

from __future__ import annotations

import asyncio
import logging

from penstock.world import Clock

log = logging.getLogger(__name__)

INTERVAL_S = 0.01
# A single delay above this is told, though not more often than so.
TOLD_ABOVE_S = 0.1
TOLD_EVERY_S = 10.0
# Counted by the millisecond, which is what timers can tell; beyond, in one.
_LAST_MS = 1_000
# So many timers without the least delay: this is not the real time.
_VIRTUAL_AFTER = 100


class LoopDelay:
    """Delays since `start`, in milliseconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts = [0] * (_LAST_MS + 1)
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._fired = 0
        self._told = -TOLD_EVERY_S
        self.worst_ms = 0.0

    def start(self) -> None:
        self._due = self._clock.monotonic() + INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._fire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def percentile(self, percent: float) -> float:
        """The delay that this share of moments does not exceed, rounded up to a millisecond; 0
        where nothing was measured."""
        wanted, seen = sum(self._counts) * percent / 100, 0
        for milliseconds, count in enumerate(self._counts[:_LAST_MS]):
            seen += count
            if seen >= wanted:
                return min(milliseconds + 1.0, self.worst_ms)
        return self.worst_ms

    def __str__(self) -> str:
        figures = " ".join(
            f"p{percent:g} {self.percentile(percent):.1f}" for percent in (50, 99, 99.9)
        )
        return f"{figures} worst {self.worst_ms:.1f} ms"

    def _fire(self) -> None:
        delay = max(0.0, self._clock.monotonic() - self._due)
        self._note(delay)
        if delay > TOLD_ABOVE_S and self._due - self._told >= TOLD_EVERY_S:
            self._told = self._due
            log.warning(
                "the event loop was held up for %d ms: all clients waited. Since the start: %s",
                delay * 1000,
                self,
            )
        self._fired += 1
        if self.worst_ms > 0 or self._fired < _VIRTUAL_AFTER:
            self.start()

    def _note(self, delay_s: float) -> None:
        """Also the timers that would have fired meanwhile: a long stall is not one bad moment but
        many."""
        self.worst_ms = max(self.worst_ms, delay_s * 1000)
        self._counts[min(int(delay_s * 1000), _LAST_MS)] += 1
        for missed in range(1, min(int(delay_s / INTERVAL_S), _LAST_MS) + 1):
            self._counts[min(int((delay_s - missed * INTERVAL_S) * 1000), _LAST_MS)] += 1
