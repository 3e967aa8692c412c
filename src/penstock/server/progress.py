"""How fast the peer of a connection sends the request that it started, and takes its responses.

A rate is that of the peer, not of the server. Bytes count that the kernel has received and the
server has not read. The time in which the server does not read does not count, unless the kernel
says how much the peer has sent meanwhile.
"""

from __future__ import annotations

import asyncio
import math

from penstock.limits import (
    FRAME_GRACE_S,
    MAX_MEMORY_CHECK_S,
    MIN_FRAME_BYTES_PER_S,
    REQUEST_WINDOW_S,
    RESPONSE_WINDOW_S,
)
from penstock.server.sockets import unread_bytes, untaken_bytes


class _Window:
    """The time over which a rate is measured. It begins again after `length_s`, but goes on while
    the rate is below the minimum."""

    __slots__ = ("began", "count", "length_s")

    def __init__(self, length_s: float) -> None:
        self.length_s = length_s
        self.began = -math.inf
        self.count = 0

    def restart(self, now: float, count: int) -> None:
        self.began, self.count = now, count

    def rate(self, now: float, count: int) -> float:
        """Return the bytes per second up to `count`, infinity if the window is too short."""
        time_s = now - self.began
        if time_s < self.length_s:
            return math.inf
        rate = (count - self.count) / time_s
        if rate >= MIN_FRAME_BYTES_PER_S:
            self.restart(now, count)
        return rate


class Progress:
    """With `receive_buffer_bytes` None, the operating system chooses the size of the buffer."""

    __slots__ = (
        "_full_bytes",
        "_paused_at",
        "_request",
        "_response",
        "_response_seen",
        "_transport",
        "frame_began",
    )

    def __init__(self, transport: asyncio.Transport, receive_buffer_bytes: int | None) -> None:
        self._transport = transport
        # When the frame began of which a part has arrived; the time of pauses is added.
        self.frame_began: float | None = None
        self._paused_at = 0.0
        self._request = _Window(REQUEST_WINDOW_S)
        self._response = _Window(RESPONSE_WINDOW_S)
        self._response_seen = -math.inf
        # With so many unread bytes, the peer may wait for the server to read.
        self._full_bytes = MIN_FRAME_BYTES_PER_S
        if receive_buffer_bytes is not None:
            self._full_bytes = min(self._full_bytes, receive_buffer_bytes // 8)

    def begin_frame(self, now: float) -> None:
        """A part of a frame has arrived; called for each part."""
        if self.frame_began is None:
            self.frame_began = now
            self._request.restart(now, 0)

    def pause(self, now: float) -> None:
        self._paused_at = now

    def resume(self, now: float) -> None:
        if self.frame_began is not None:
            self.frame_began += now - self._paused_at
            self._request.began += now - self._paused_at

    def frame_age_s(self, now: float) -> float:
        return 0.0 if self.frame_began is None else now - self.frame_began

    def is_overdue(self, now: float, held: int) -> bool:
        """Return True if the started request has arrived too slowly as a whole, of which `held`
        bytes were read."""
        return held < (self.frame_age_s(now) - FRAME_GRACE_S) * MIN_FRAME_BYTES_PER_S

    def request_rate(self, now: float, held: int, missing: int, *, reading: bool) -> float:
        """Return at which rate (bytes/s) the started request arrives, of which `held` bytes were
        read and `missing` were not. It is infinite if that is not known, or the server is to
        read."""
        window = self._request
        if self.frame_began is None or now - window.began < window.length_s:
            return math.inf
        unread = unread_bytes(self._transport)
        if unread is None:
            return window.rate(now, held) if reading else math.inf
        if unread >= missing or (not reading and unread >= self._full_bytes):
            window.restart(now, held + unread)
            return math.inf
        return window.rate(now, held + unread)

    def response_rate(self, now: float, written: int) -> float:
        """Return at which rate (bytes/s) the peer takes responses, infinity if that is not known.
        Call it only if the peer must read before more can be sent."""
        taken = self.taken(written)
        if now - self._response_seen > 2 * MAX_MEMORY_CHECK_S:  # probably another response
            self._response.restart(now, taken)
        self._response_seen = now
        return self._response.rate(now, taken)

    def taken(self, written: int) -> int:
        """Return how many of the written bytes the peer has taken."""
        return written - self._transport.get_write_buffer_size() - untaken_bytes(self._transport)
