"""Logs jumps of the wall clock: how far it moves against the monotonic clock.

Records, retention and transaction timeouts use the wall clock. Nothing else depends on it (rule
26), so the only trace of a jump would be timestamps that nobody can explain.
"""

from __future__ import annotations

import logging

from penstock.world import Clock

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
# NTP slews smaller errors away.
JUMP_MS = 1_000


class ClockJumps:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._checked_s = clock.monotonic()
        self._wall_ms = clock.now_ms()

    def check(self) -> None:
        """Log a jump since the last check, which was at least a second ago."""
        now_s = self._clock.monotonic()
        passed_s = now_s - self._checked_s
        if passed_s < CHECK_EVERY_S:
            return
        wall_ms = self._clock.now_ms()
        jump_ms = wall_ms - self._wall_ms - passed_s * 1000
        self._checked_s, self._wall_ms = now_s, wall_ms
        if abs(jump_ms) >= JUMP_MS:
            log.warning(
                "the wall clock jumped %s by %d s. Timestamps of records jump with it, and "
                "retention may delete records earlier or later than expected; check the time "
                "service of this machine",
                "forwards" if jump_ms > 0 else "backwards",
                round(abs(jump_ms) / 1000),
            )
