"""One direction of a simulated connection: bytes in order, each piece delayed, held back while the
path is blocked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from penstock.world.sim.fabric import RETRANSMIT_TIMEOUT_S, Fabric
from penstock.world.sim.frames import Apis, Frame, FrameReader, FrameTrigger
from penstock.world.sim.process import SimProcess

# What happens when the receiver has taken a piece.
_Mark = Callable[[], None] | None


class Pipe:
    """Calls `arrived` when data can be taken, in the receiver's process; `expired` when the sender
    gives up, and `was_cut` when the connection is reset, in no process."""

    def __init__(
        self, fabric: Fabric, source: str, target: str, apis: Apis, *, is_request: bool
    ) -> None:
        self.source = source
        self.target = target
        self.size = 0
        self.receiver: SimProcess
        self.arrived: Callable[[], None]
        self.expired: Callable[[], None]
        self.was_cut: Callable[[], None]
        self._fabric = fabric
        self._loop = fabric.loop
        self._rng = fabric.rng(source, target)
        self._pieces: deque[tuple[float, bytes, _Mark]] = deque()
        self._last = 0.0
        self._end: float | None = None
        self._closed = False
        self._timer: asyncio.Handle | None = None
        self._expiry: asyncio.Handle | None = None
        self._frames = FrameReader(source, target, apis, is_request=is_request)
        # Where in the stream a trigger interrupts it.
        self._marks: list[tuple[int, FrameTrigger, Frame]] = []
        self._number = fabric.number()
        fabric.links[self._number] = self

    def push(self, data: bytes) -> None:
        if self._closed:
            return
        self.size += len(data)
        if self._fabric.triggers:
            self._set_marks(self._frames.read(data))
        else:
            self._frames.skip(data)
        if self._marks:
            data = self._send_marked(data)
        if data:
            self._send(data)
        if self._timer is None:
            self._schedule()

    def push_end(self) -> None:
        if self._end is None and not self._closed:
            self._end = self._arrival(self._loop.now)
            self._schedule()

    def _send(self, data: bytes, mark: _Mark = None) -> None:
        bandwidths = self._fabric.bandwidths
        bandwidth = bandwidths.get((self.source, self.target)) if bandwidths else None
        if bandwidth is None:
            self._pieces.append((self._arrival(self._loop.now), data, mark))
            return
        for at in range(0, len(data), bandwidth.packet_bytes):
            packet = data[at : at + bandwidth.packet_bytes]
            arrival = self._arrival(bandwidth.send(len(packet), self._loop.now))
            is_last = at + len(packet) == len(data)
            self._pieces.append((arrival, packet, mark if is_last else None))

    def _arrival(self, sent: float) -> float:
        if self._fabric.has_closed_paths:
            self._begin_expiry()
        arrival = sent + self._fabric.delay(self._rng)
        self._last = last = arrival if arrival > self._last else self._last
        return last

    # Triggers

    def _set_marks(self, frames: list[tuple[int, Frame]]) -> None:
        for position, frame in frames:
            for trigger in self._fabric.take_triggers(frame):
                if trigger.after_bytes is None:
                    self._loop.call_next(trigger.action, frame)
                else:
                    count = frame.size if trigger.after_bytes < 0 else trigger.after_bytes
                    self._marks.append((position + min(count, frame.size), trigger, frame))
        self._marks.sort(key=lambda mark: mark[0])

    def _send_marked(self, data: bytes) -> bytes:
        """Send the data up to the last mark in it, and return the rest."""
        begin = self._frames.position - len(data)
        while self._marks and self._marks[0][0] <= begin + len(data):
            position, trigger, frame = self._marks.pop(0)
            # A mark at a place that was sent already is set before the next byte.
            count = max(1, position - begin)
            self._send(data[:count], self._firing(trigger, frame))
            self._last += trigger.hold_s
            data = data[count:]
            begin += count
        return data

    def _firing(self, trigger: FrameTrigger, frame: Frame) -> Callable[[], None]:
        return lambda: self._loop.call_next(trigger.action, frame)

    # Receiving

    def take(self) -> bytes:
        """Take data that has arrived, or nothing. Pieces are joined and split at random, as TCP
        does."""
        pieces, now = self._pieces, self._loop.now
        if not pieces or pieces[0][0] > now or not self._open():
            return b""
        _, data, mark = pieces.popleft()
        while mark is None and pieces and pieces[0][0] <= now:
            _, piece, mark = pieces.popleft()
            data += piece
        if len(data) > 1 and self._rng.random() < self._fabric.split:
            cut = self._rng.randrange(1, len(data))
            pieces.appendleft((now, data[cut:], mark))
            data, mark = data[:cut], None
        self.size -= len(data)
        if mark is not None:
            mark()
        return data

    def put_back(self, data: bytes) -> None:
        """Return data that the receiver took but could not use."""
        self._pieces.appendleft((self._loop.now, data, None))
        self.size += len(data)

    @property
    def waiting(self) -> bool:
        """Whether data has arrived that was not taken."""
        return bool(self._pieces) and self._pieces[0][0] <= self._loop.now and self._open()

    @property
    def ended(self) -> bool:
        """Whether the end has arrived and all data before it was taken."""
        return (
            self._end is not None
            and not self._pieces
            and self._end <= self._loop.now
            and self._open()
        )

    def resume(self) -> None:
        """Schedule the arrival of the rest after a `take`."""
        self._schedule()

    def drop(self, keep: int = 0) -> None:
        """Drop data in transit, except for the first `keep` bytes."""
        kept = b"".join(piece for _, piece, _ in self._pieces)[:keep]
        self._pieces.clear()
        self._marks.clear()
        self.size = len(kept)
        if kept and not self._closed:
            self._send(kept)
            self._schedule()

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
        if self._fabric.acknowledged(self.source, self.target):
            if self._expiry is not None:
                self._expiry.cancel()
                self._expiry = None
        elif self._last > self._loop.now:
            self._begin_expiry()
        self._schedule()

    def cut(self) -> None:
        self.was_cut()

    def _open(self) -> bool:
        return not self._fabric.has_closed_paths or self._fabric.open(self.source, self.target)

    def _schedule(self) -> None:
        when = self._pieces[0][0] if self._pieces else self._end
        if self._timer is None and when is not None:
            now = self._loop.now
            self._timer = self._loop.deliver_at(
                when if when > now else now, self._arrive, self.receiver
            )

    def _arrive(self) -> None:
        self._timer = None
        if self._open():
            self.arrived()

    def _begin_expiry(self) -> None:
        """Let the sender give up after a while, if it sent something that is not acknowledged."""
        if self._expiry is None and not self._fabric.acknowledged(self.source, self.target):
            self._expiry = self._loop.deliver_at(
                self._loop.now + RETRANSMIT_TIMEOUT_S, self._expire
            )

    def _expire(self) -> None:
        self._expiry = None
        if not self._fabric.acknowledged(self.source, self.target):
            self.expired()
