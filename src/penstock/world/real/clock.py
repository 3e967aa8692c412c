"""The machine's clocks."""

from __future__ import annotations

import time


class RealClock:
    """Both event loops, asyncio's and uvloop's, count their time() by this monotonic clock too."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
