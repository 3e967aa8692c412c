"""The bytes that a connection has received and not yet handled. Frames are views of them, never
copies.

Most of the time a connection holds no part of a frame, and reads into a buffer that all connections
of a server share. A part of a frame moves to the connection's own buffer, which grows up to the
size of the frame and is released by `trim`. So a view is valid only until the connection reads
again.
"""

from __future__ import annotations

from penstock.limits import MIN_RECEIVE_BYTES
from penstock.protocol.framing import SIZE_BYTES, frame_size

# More than any buffer has.
NO_LIMIT = 2**63 - 1


class ReceiveBuffer:
    __slots__ = ("_end", "_maximum", "_shared", "_start", "_view")

    def __init__(self, shared: memoryview, maximum: int) -> None:
        self._shared = shared
        self._maximum = maximum
        self._view = shared
        self._start = 0
        self._end = 0

    def room(self, most: int = NO_LIMIT) -> memoryview:
        """Return where the next bytes go; never empty. Within a frame it ends with the frame, so
        that nothing after it needs to be moved. The buffer does not grow beyond `most` bytes,
        unless it `is_full`."""
        if self._start == self._end:
            self._start = self._end = 0
            return self._view if most >= len(self._view) else self._view[:most]
        needed = self._needed()
        if self._start + needed > len(self._view):
            self._make_room(needed, most)
        return self._view[self._end : self._start + needed]

    def received(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame without its size bytes. Raises ProtocolError for an
        invalid size."""
        start = self._start + SIZE_BYTES
        if start > self._end:
            return None
        stop = start + frame_size(self._view, self._start, self._maximum)
        if stop > self._end:
            return None
        self._start = stop
        return self._view[start:stop]

    def allow(self, maximum: int) -> None:
        """Accept frames of up to `maximum` bytes from now on."""
        self._maximum = maximum

    def settle(self) -> None:
        """Leave the shared buffer to the other connections; called when no more frames are taken
        for now."""
        if self._start == self._end:
            if len(self._view) < len(self._shared):
                self._view = self._shared
        elif self._view is self._shared:
            # With some room, to see if the peer sends more.
            self._move_to(min(self._needed(), self.held + MIN_RECEIVE_BYTES))

    def trim(self) -> None:
        """Release the connection's own buffer if it is empty."""
        if self._start == self._end:
            self.discard()

    def discard(self) -> None:
        """Drop all bytes."""
        self._view = self._shared
        self._start = self._end = 0

    @property
    def is_empty(self) -> bool:
        return self._start == self._end

    @property
    def held(self) -> int:
        """The bytes that are not handled yet."""
        return self._end - self._start

    @property
    def own_bytes(self) -> int:
        """The size of the connection's own buffer."""
        return 0 if self._view is self._shared else len(self._view)

    @property
    def missing(self) -> int:
        """The bytes of the started frame that were not read yet, as far as its size is known."""
        if self.held < SIZE_BYTES:
            return MIN_RECEIVE_BYTES
        size = int.from_bytes(self._view[self._start : self._start + SIZE_BYTES], signed=True)
        return max(0, SIZE_BYTES + size - self.held)

    def is_full(self, most: int) -> bool:
        """Return True if more bytes need a buffer that is larger than the present one and than
        `most`."""
        return self.held >= max(most, self.own_bytes)

    def _needed(self) -> int:
        """Return the room needed from the start of the held bytes: up to the end of the frame, if
        its size is known."""
        if self.held < SIZE_BYTES:
            return MIN_RECEIVE_BYTES
        frame = SIZE_BYTES + frame_size(self._view, self._start, self._maximum)
        return frame if frame > self.held else self.held + MIN_RECEIVE_BYTES

    def _make_room(self, needed: int, most: int) -> None:
        """Double at most, whatever size a frame claims."""
        size = min(needed, max(MIN_RECEIVE_BYTES, 2 * self.held))
        if not self.is_full(most):
            size = min(size, max(most, self.own_bytes))
        if size > len(self._view):
            self._move_to(size)
        elif self._start:
            self._view[: self.held] = self._view[self._start : self._end]
            self._start, self._end = 0, self.held

    def _move_to(self, size: int) -> None:
        held, old = self.held, self._view[self._start : self._end]
        self._view = memoryview(bytearray(size))
        self._view[:held] = old
        self._start, self._end = 0, held
