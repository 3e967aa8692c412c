"""A machine's clock: monotonic time is the event loop's; wall time may be skewed and may jump."""

from __future__ import annotations

from collections.abc import Callable

FIRST_WALL_MS = 1_700_000_000_000


class SimClock:
    """Belongs to the machine, so its skew survives restarts of the node."""

    __slots__ = ("_start", "monotonic", "skew_ms")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self.skew_ms = 0
        self._start = monotonic()

    def now_ms(self) -> int:
        return FIRST_WALL_MS + int((self.monotonic() - self._start) * 1000) + self.skew_ms

    def jump(self, milliseconds: int) -> None:
        """Move the wall clock forward, or back if negative."""
        self.skew_ms += milliseconds
