"""The clock of a shard's steps: the world's clock, stopped while the shard cannot write.

A member whose heartbeat was refused because too few replicas are in sync is not late, and must not
be removed when they are back. So deadlines do not pass meanwhile: a member keeps what was left of
its session.
"""

from __future__ import annotations

from penstock.coordinator.runtime.step import Now
from penstock.world import Clock


class StepClock:
    """Times of steps are in milliseconds. They fall behind the event loop's clock with every
    stop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._behind_ms = 0
        # The time of steps at which the clock was stopped.
        self._stopped_at_ms: int | None = None

    def now(self, *, is_running: bool) -> Now:
        """Return the time of a step. The clock stops with the first call in which it is not
        running, and continues with the next in which it is."""
        loop_ms = int(self._clock.monotonic() * 1000)
        if self._stopped_at_ms is not None:
            self._behind_ms = loop_ms - self._stopped_at_ms
        ms = loop_ms - self._behind_ms
        self._stopped_at_ms = None if is_running else ms
        return Now(ms, self._clock.now_ms())

    def loop_time(self, ms: int) -> float:
        """Return when the event loop reaches a time of steps, if the clock runs from now on."""
        return (ms + self._behind_ms) / 1000
