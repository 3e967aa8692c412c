"""One direction of a simulated connection: bytes in order, each piece after a delay, held back
while the path is closed.

Owns what is on its way. It must never know of protocols, nor of the other direction.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from penstock.world.sim.fabric import RETRANSMIT_TIMEOUT_S, Fabric
from penstock.world.sim.owner import NOBODY


class Pipe:
    """`arrived` is called when there is something to take (on no node's behalf), `expired` when the
    sender gives up, `was_cut` at a cut."""

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
        """What has arrived, at least one piece of it; pieces are joined and split as TCP does.
        Empty when nothing has."""
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
        """For what the receiver could not take at once (taken: it was counted as gone already)."""
        self._pieces.appendleft((self._fabric.loop.time(), data))
        self.size += len(data) if taken else 0

    @property
    def waiting(self) -> bool:
        """Whether something has arrived that nobody has taken."""
        return (
            bool(self._pieces) and self._pieces[0][0] <= self._fabric.loop.time() and self._open()
        )

    @property
    def ended(self) -> bool:
        """Whether the end has arrived and nothing before it is left."""
        return (
            not self._pieces
            and self._end is not None
            and self._end <= self._fabric.loop.time()
            and self._open()
        )

    def go_on(self) -> None:
        """After a take: the rest arrives in its time."""
        self._schedule()

    def drop(self, keep: int = 0) -> None:
        """Forgets what is on its way, but for the first bytes."""
        kept = b"".join(piece for _, piece in self._pieces)[:keep]
        self._pieces.clear()
        self.size = 0
        if kept:
            self.push(kept)

    def close(self) -> None:
        """Nothing arrives any more."""
        self.drop()
        self._end = None
        self._closed = True
        self._fabric.links.pop(self._number, None)
        for timer in (self._timer, self._expiry):
            if timer is not None:
                timer.cancel()

    # As the faults see it

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
                max(when or 0.0, self._fabric.loop.time()), self._arrive, context=NOBODY
            )

    def _arrive(self) -> None:
        self._timer = None
        if not self._fabric.acknowledged(self.source, self.target) and self._expiry is None:
            self._expiry = self._fabric.loop.call_later(
                RETRANSMIT_TIMEOUT_S, self._expire, context=NOBODY
            )
        if self._open():
            self.arrived()

    def _expire(self) -> None:
        self._expiry = None
        if not self._fabric.acknowledged(self.source, self.target):
            self.expired()
