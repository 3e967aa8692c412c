"""How answers leave: bytes at once, ranges of files in pieces as the peer takes them. The one place that knows what a range is.

At most one piece is in memory beside what the transport holds, however large the range and slow the reader. Sending by os.sendfile belongs
here too, in `_piece` (uvloop's own is not implemented); a simulated file has no descriptor and is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Protocol, cast

from penstock.ids import Buffer
from penstock.limits import SEND_PIECE_BYTES, SMALL_RANGE_BYTES
from penstock.protocol.schema import Records


class _File(Protocol):
    def pread(self, length: int, position: int, /) -> bytes: ...


class _FileRange(Protocol):
    """What a log gives instead of bytes."""

    @property
    def file(self) -> _File: ...

    @property
    def position(self) -> int: ...

    def __len__(self) -> int: ...


class _Readable(Protocol):
    def read(self) -> bytes: ...


class ShortRange(Exception):
    """A file has fewer bytes than its range promised. The answer is half sent, so that its connection cannot be used any more."""


class Writer:
    """`pause` and `resume` are what the transport says of its own buffer."""

    __slots__ = ("_done", "_gathered", "_parts", "_paused", "_transport", "written")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        # Small answers to requests that came together leave together: a system call costs more than all the rest of one.
        self._gathered: list[bytes] = []
        self._parts: deque[Records] = deque()
        self._done = 0  # bytes of the first part that have left, where it is a range
        self._paused = False
        self.written = 0

    @property
    def blocked(self) -> bool:
        """Whether the peer has to read before anything more can be sent."""
        return self._paused or bool(self._parts)

    def send(self, parts: list[Records]) -> None:
        """Takes all of an answer. It leaves with the next `flush` at the latest; what cannot leave then leaves on `resume`. OSError and
        ShortRange where a range cannot be read."""
        if len(parts) == 1 and not self._paused and not self._parts and isinstance(parts[0], bytes):
            self._gathered.append(parts[0])
            return
        self._parts.extend(self._gathered)
        self._gathered.clear()
        self._parts.extend(parts)
        self._pump()

    def flush(self) -> None:
        """Whoever calls `send` calls this when it is done with what there is to do now."""
        if self._gathered:
            data = b"".join(self._gathered)
            self._gathered.clear()
            self.written += len(data)
            self._transport.write(data)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._pump()

    def drop(self) -> None:
        """The connection is no more: files are let go."""
        self._gathered.clear()
        self._parts.clear()

    def _pump(self) -> None:
        while self._parts and not self._paused:
            ready = list(self._take_bytes())
            if ready:
                self.written += sum(map(len, ready))
                self._transport.writelines(ready)
            else:
                self._send_piece()

    def _take_bytes(self) -> Iterable[Buffer]:
        """What can leave in one call: bytes, and small ranges between them, up to a piece."""
        taken = 0
        while self._parts and taken < SEND_PIECE_BYTES:
            part = self._parts[0]
            if isinstance(part, bytes | bytearray | memoryview):
                data = part
            elif self._done == 0 and len(part) <= SMALL_RANGE_BYTES and hasattr(part, "file"):
                data = _piece(cast(_FileRange, part), 0, len(part))
            else:
                return
            self._parts.popleft()
            taken += len(data)
            yield data

    def _send_piece(self) -> None:
        part = cast(_FileRange, self._parts[0])
        if not hasattr(part, "file"):  # a range of something else: it can only be read as a whole
            self._parts[0] = cast(_Readable, part).read()
            return
        left = len(part) - self._done
        if left:
            piece = _piece(part, self._done, min(left, SEND_PIECE_BYTES))
            self._done += len(piece)
            self.written += len(piece)
        if self._done == len(part):
            self._parts.popleft()
            self._done = 0
        if left:
            self._transport.write(piece)


def _piece(part: _FileRange, start: int, length: int) -> bytes:
    piece = part.file.pread(length, part.position + start)
    if len(piece) != length:
        raise ShortRange(
            f"a file gave {len(piece)} of {length} bytes at {part.position + start}: it was cut while an answer was being sent"
        )
    return piece
