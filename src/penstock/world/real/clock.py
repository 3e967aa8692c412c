"""The machine's clocks."""

from __future__ import annotations

import time


class RealClock:
    """time.monotonic is also the clock behind time() of the event loops of asyncio and uvloop."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
