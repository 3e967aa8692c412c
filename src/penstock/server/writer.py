"""How answers leave: bytes at once, ranges of files as the peer takes them. Owns the order of what
leaves on one connection.

Large ranges go from file to socket inside the kernel (`outlet`), small ones are read and leave with
the bytes around them in one call. What is not in memory is brought there in a thread first, a piece
at a time (`ranges`). Whatever the size of a range and the speed of its reader, at most one piece is
in memory beside what the transport holds, and at most one leaves in a turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from penstock.ids import Buffer
from penstock.limits import SEND_PIECE_BYTES, SMALL_RANGE_BYTES
from penstock.protocol.schema import Records
from penstock.server.outlet import Outlet
from penstock.server.ranges import FileRange, RangeFile, ShortRange, descriptor, read, short
from penstock.world import Offload


class _Readable(Protocol):
    def read(self) -> bytes: ...


class Writer:
    """`pause` and `resume` are what the transport says of its own buffer. `wake` is called when it
    is time to `go_on`, and `failed` where an answer cannot be sent: OSError and ShortRange of its
    file, ConnectionError where the peer is gone."""

    __slots__ = (
        "_done",
        "_failed",
        "_fetching",
        "_gathered",
        "_in_memory",
        "_offload",
        "_outlet",
        "_parts",
        "_paused",
        "_transport",
        "_wake",
        "written",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        offload: Offload,
        wake: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._transport = transport
        self._offload = offload
        self._wake = wake
        self._failed = failed
        self._outlet = Outlet(transport, wake)
        # Small answers to requests that came together leave together: a system call costs more than
        # all the rest of one.
        self._gathered: list[bytes] = []
        self._parts: deque[Records] = deque()
        # Of the first part, where it is a range: bytes that have left, and those that are known to
        # be in memory.
        self._done = 0
        self._in_memory = 0
        self._fetching: asyncio.Task[object] | None = None
        self._paused = False
        self.written = 0

    @property
    def blocked(self) -> bool:
        """Whether what was sent before has to leave before anything more can."""
        return self._paused or bool(self._parts)

    def send(self, parts: list[Records]) -> None:
        """Takes all of an answer. It leaves with the next `flush` at the latest; what cannot leave
        then leaves when it can."""
        if len(parts) == 1 and not self._paused and not self._parts and isinstance(parts[0], bytes):
            self._gathered.append(parts[0])
            return
        self._parts.extend(self._gathered)
        self._gathered.clear()
        self._parts.extend(parts)
        self.go_on()

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

    def drop(self) -> None:
        """The connection is no more: files are let go."""
        self._gathered.clear()
        self._parts.clear()
        self._outlet.stop_waiting()
        if self._fetching is not None:
            self._fetching.cancel()

    def go_on(self) -> None:
        """Sends what can be sent now."""
        try:
            self._send_on()
        except (OSError, ShortRange) as error:
            self._failed(error)

    def _send_on(self) -> None:
        turn_ends = self.written + SEND_PIECE_BYTES
        while self._parts and not (
            self._paused or self._outlet.waiting or self._fetching or self._transport.is_closing()
        ):
            ready = self._take_bytes()
            if ready:
                self.written += sum(map(len, ready))
                self._transport.writelines(ready)
            elif self.written < turn_ends or not self._outlet.usable:
                self._send_range()
            else:  # the other connections have their turn
                self._outlet.wait_room()

    def _take_bytes(self) -> list[Buffer]:
        """What can leave in one call: bytes, and small ranges between them, up to a piece."""
        ready: list[Buffer] = []
        taken = 0
        while self._parts and taken < SEND_PIECE_BYTES:
            part = self._parts[0]
            data: Buffer | None = None
            if isinstance(part, bytes | bytearray | memoryview):
                data = part
            elif (
                self._done == self._in_memory == 0
                and len(part) <= SMALL_RANGE_BYTES
                and hasattr(part, "file")
            ):
                small = cast(FileRange, part)
                data = small.file.pread_at_once(len(part), small.position)
            if data is None:
                break
            self._parts.popleft()
            taken += len(data)
            ready.append(data)
        return ready

    def _send_range(self) -> None:
        part = cast(FileRange, self._parts[0])
        if not hasattr(part, "file"):  # a range of something else: it can only be read as a whole
            self._parts[0] = cast(_Readable, part).read()
            return
        length, position = min(len(part) - self._done, SEND_PIECE_BYTES), part.position + self._done
        if self._in_memory < self._done + length:
            if not part.file.in_memory(length, position):
                self._fetching = asyncio.ensure_future(self._fetch(part.file, length, position))
                return
            self._in_memory = self._done + length
        sent = self._send_piece(part.file, length, position)
        self._done += sent
        self.written += sent
        if self._done == len(part):
            self._parts.popleft()
            self._done = self._in_memory = 0

    def _send_piece(self, file: RangeFile, length: int, position: int) -> int:
        fd = descriptor(file)
        if fd is None or not self._outlet.usable:
            # A simulated file; or a transport that still holds bytes, behind which this piece goes.
            # Soon that is more than it takes without a pause, after which it is empty.
            self._transport.write(read(file, length, position))
            return length
        sent = self._outlet.send_file(fd, length, position)
        if sent == 0:
            raise short(0, length, position)
        if sent != length:
            self._outlet.wait_room()
        return sent or 0

    async def _fetch(self, file: RangeFile, length: int, position: int) -> None:
        """From the disk into memory, away from the event loop."""
        try:
            await self._offload.thread(file.bring_in, length, position)
        except OSError as error:
            self._failed(error)
            return
        self._in_memory = self._done + length
        self._fetching = None
        self._wake()
