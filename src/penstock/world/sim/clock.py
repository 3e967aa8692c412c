"""A machine's clock and its speed: how its time runs, and how long its process computes."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.world.sim.loop import SimLoop
    from penstock.world.sim.process import SimProcess

FIRST_WALL_MS = 1_700_000_000_000
# The share of a callback's mean time that one reading of the monotonic clock takes. Code that
# computes until a deadline therefore reaches it.
_READING_SHARE = 0.125


class SimClock:
    """Belongs to the machine, so its skew and its rate survive restarts of the node.

    The process of the machine sees `monotonic` and the event loop's time(), which are the same. Its
    time runs at `set_rate` times the simulation's virtual time, and is ahead of it by what the
    process has computed since it last gave up the CPU.
    """

    __slots__ = ("_local", "_loop", "_rate", "_start", "_virtual", "process", "skew_ms")

    def __init__(self, loop: SimLoop) -> None:
        self.skew_ms = 0
        self.process: SimProcess
        self._loop = loop
        self._start = loop.now
        self._rate = 1.0
        # The local and the virtual time of one moment, from which others are calculated.
        self._local = self._virtual = loop.now

    @property
    def is_plain(self) -> bool:
        """Whether monotonic time is virtual time, so that the loop need not ask this clock."""
        return self._rate == 1.0 and self._local == self._virtual

    def monotonic(self) -> float:
        process = self.process
        if process.clock is None:
            return self._loop.now
        if process.speed is not None:
            process.ahead_s += process.speed.callback_s * _READING_SHARE
        return self._read()

    def _read(self) -> float:
        now = self._loop.now + self.process.ahead_s
        return now if self.is_plain else self._local + (now - self._virtual) * self._rate

    def virtual(self, local: float) -> float:
        """Return the first virtual time at which the machine's clock shows a local time."""
        if self.is_plain:
            return local
        when = self._virtual + (local - self._local) / self._rate
        while self._local + (when - self._virtual) * self._rate < local:
            when = math.nextafter(when, math.inf)
        return when

    def now_ms(self) -> int:
        return FIRST_WALL_MS + int((self._read() - self._start) * 1000) + self.skew_ms

    def jump(self, milliseconds: int) -> None:
        """Move the wall clock forward, or back if negative."""
        self.skew_ms += milliseconds

    def set_rate(self, rate: float) -> None:
        """Let the clock run fast (above 1) or slow. Timers that are set already do not move."""
        if not 0.5 <= rate <= 2.0:
            raise ValueError(f"a clock's rate is about 1, not {rate}")
        now = self._loop.now
        self._local += (now - self._virtual) * self._rate
        self._virtual, self._rate = now, rate


class Speed:
    """How long the callbacks of a machine's process take: `callback_s` on average, and with
    probability `pause_share` up to `pause_s` more, as a garbage collection would."""

    __slots__ = ("_pause_s", "_pause_share", "_rng", "callback_s")

    def __init__(
        self, rng: random.Random, callback_s: float, pause_s: float, pause_share: float
    ) -> None:
        self.callback_s = callback_s
        self._rng = rng
        self._pause_s = pause_s
        self._pause_share = pause_share

    def draw(self) -> float:
        """Return the time of one callback."""
        taken_s = self._rng.random() * 2 * self.callback_s
        if self._pause_share and self._rng.random() < self._pause_share:
            taken_s += self._rng.random() * self._pause_s
        return taken_s
