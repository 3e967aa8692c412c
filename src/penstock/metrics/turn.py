"""Turns of a scrape: it runs for a bounded time, then the other work of the event loop has its
turn."""

from __future__ import annotations

import asyncio

from penstock.limits import SCRAPE_TURN_S
from penstock.world import Clock


class Turn:
    """Call `pause` after every piece of work that takes some microseconds."""

    __slots__ = ("_end", "_monotonic", "count")

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._end = clock.monotonic() + SCRAPE_TURN_S
        self.count = 1

    async def pause(self) -> None:
        """Let other work run if this turn has taken its time."""
        if self._monotonic() < self._end:
            return
        await asyncio.sleep(0)
        self.count += 1
        self._end = self._monotonic() + SCRAPE_TURN_S
