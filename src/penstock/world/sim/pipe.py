"""One direction of a simulated connection: bytes in order, each piece delayed, held back while the
path is blocked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from penstock.world.sim.fabric import RETRANSMIT_TIMEOUT_S, Fabric
from penstock.world.sim.process import NO_PROCESS


class Pipe:
    """Calls `arrived` when data can be taken, `expired` when the sender gives up, and `was_cut`
    when the connection is reset. The callbacks run in no process."""

    def __init__(self, fabric: Fabric, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.size = 0
        self.arrived: Callable[[], None]
        self.expired: Callable[[], None]
        self.was_cut: Callable[[], None]
        self._fabric = fabric
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._last = 0.0
        self._end: float | None = None
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._number = fabric.number()
        fabric.links[self._number] = self

    def push(self, data: bytes) -> None:
        if self._closed:
            return
        self._pieces.append((self._arrival(), data))
        self.size += len(data)
        self._schedule()

    def push_end(self) -> None:
        if self._end is None and not self._closed:
            self._end = self._arrival()
            self._schedule()

    def _arrival(self) -> float:
        self._last = max(
            self._last, self._fabric.loop.time() + self._fabric.delay(self.source, self.target)
        )
        return self._last

    def take(self) -> bytes:
        """Take data that has arrived, or nothing. Pieces are joined and split at random, as TCP
        does."""
        now, taken = self._fabric.loop.time(), []
        while self._pieces and self._pieces[0][0] <= now and self._open():
            taken.append(self._pieces.popleft()[1])
        data = b"".join(taken)
        rng = self._fabric.rng(self.source, self.target)
        if len(data) > 1 and rng.random() < self._fabric.split:
            cut = rng.randrange(1, len(data))
            self.put_back(data[cut:])
            data = data[:cut]
        self.size -= len(data)
        return data

    def put_back(self, data: bytes, *, taken: bool = False) -> None:
        """Return data that the receiver could not use. With `taken`, it was subtracted from
        `size`."""
        self._pieces.appendleft((self._fabric.loop.time(), data))
        self.size += len(data) if taken else 0

    @property
    def waiting(self) -> bool:
        """Whether data has arrived that was not taken."""
        return (
            bool(self._pieces) and self._pieces[0][0] <= self._fabric.loop.time() and self._open()
        )

    @property
    def ended(self) -> bool:
        """Whether the end has arrived and all data before it was taken."""
        return (
            not self._pieces
            and self._end is not None
            and self._end <= self._fabric.loop.time()
            and self._open()
        )

    def resume(self) -> None:
        """Schedule the arrival of the rest after a `take`."""
        self._schedule()

    def drop(self, keep: int = 0) -> None:
        """Drop data in transit, except for the first `keep` bytes."""
        kept = b"".join(piece for _, piece in self._pieces)[:keep]
        self._pieces.clear()
        self.size = 0
        if kept:
            self.push(kept)

    def close(self) -> None:
        """Drop everything; nothing arrives any more."""
        self.drop()
        self._end = None
        self._closed = True
        self._fabric.links.pop(self._number, None)
        for timer in (self._timer, self._expiry):
            if timer is not None:
                timer.cancel()

    # Used by faults

    def wake(self) -> None:
        if self._expiry is not None and self._fabric.acknowledged(self.source, self.target):
            self._expiry.cancel()
            self._expiry = None
        self._schedule()

    def cut(self) -> None:
        self.was_cut()

    def _open(self) -> bool:
        return self._fabric.open(self.source, self.target)

    def _schedule(self) -> None:
        if self._timer is None and (self._pieces or self._end is not None):
            when = self._pieces[0][0] if self._pieces else self._end
            self._timer = self._fabric.loop.call_at(
                max(when or 0.0, self._fabric.loop.time()), self._arrive, context=NO_PROCESS
            )

    def _arrive(self) -> None:
        self._timer = None
        if not self._fabric.acknowledged(self.source, self.target) and self._expiry is None:
            self._expiry = self._fabric.loop.call_later(
                RETRANSMIT_TIMEOUT_S, self._expire, context=NO_PROCESS
            )
        if self._open():
            self.arrived()

    def _expire(self) -> None:
        self._expiry = None
        if not self._fabric.acknowledged(self.source, self.target):
            self.expired()
