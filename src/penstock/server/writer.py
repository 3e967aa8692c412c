"""Sends the responses of one connection: bytes immediately, file ranges as the peer takes them.

The kernel sends large ranges from the file to the socket, and the bytes around them go to the same
socket (`sendfile`). Small ranges are read, and leave with the bytes around them in one call. Pages
that are not in memory are read by a thread first, a piece at a time. Whatever the size of a range
and the speed of its reader, at most one piece is in memory besides what the transport holds, and
other connections have their turn after some megabytes.

The bytes of an encrypted connection all go through its transport, which encrypts them. Ranges are
read in smaller pieces, and other connections have their turn after each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from penstock.ids import Buffer
from penstock.limits import (
    SEND_BYTES_A_TURN,
    SEND_PIECE_BYTES,
    SMALL_RANGE_BYTES,
    TLS_BYTES_A_TURN,
    WRITE_BUFFER_BYTES,
)
from penstock.protocol.schema import Records
from penstock.server.sendfile import (
    FileRange,
    RangeFile,
    SendSocket,
    ShortRange,
    descriptor,
    read_range,
    short_range,
)
from penstock.world import Offload


def _do_nothing() -> None:
    """Stands for a callback of a closed connection."""


def _ignore(_error: Exception) -> None:
    """Stands for a callback of a closed connection."""


class _Readable(Protocol):
    def read(self) -> bytes: ...


class Writer:
    """`all_watched` are the descriptors that the writers of all connections watch. `pause` and
    `resume` follow the transport's own buffer. `ready` is called when it is time to
    `resume_parts`, and `failed` if a response cannot be sent: with OSError or ShortRange of its
    file, with ConnectionError if the peer is gone."""

    __slots__ = (
        "_bytes",
        "_done",
        "_failed",
        "_gathered",
        "_in_memory",
        "_loading",
        "_offload",
        "_parts",
        "_parts_bytes",
        "_paused",
        "_piece_bytes",
        "_ready",
        "_socket",
        "_transport",
        "_turn",
        "_turn_bytes",
        "written",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        offload: Offload,
        ready: Callable[[], None],
        failed: Callable[[Exception], None],
        all_watched: set[int],
    ) -> None:
        self._transport = transport
        self._offload = offload
        self._ready = ready
        self._failed = failed
        self._socket = SendSocket(transport, ready, all_watched)
        # Small responses to requests that arrived together leave together: a system call costs more
        # than all the rest of a small response.
        self._bytes: list[bytes] = []
        self._gathered = 0
        self._parts: deque[Records] = deque()
        # The bytes among the parts; ranges are not in memory.
        self._parts_bytes = 0
        # Of the first part, if it is a range: the bytes that have left, and those that are known to
        # be in memory.
        self._done = 0
        self._in_memory = 0
        self._loading: asyncio.Task[object] | None = None
        self._paused = False
        encrypted = transport.get_extra_info("ssl_object") is not None
        self._piece_bytes = TLS_BYTES_A_TURN if encrypted else SEND_PIECE_BYTES
        # What an encrypted connection sends in one turn; None if it is not encrypted. Its next
        # turn.
        self._turn_bytes = TLS_BYTES_A_TURN if encrypted else None
        self._turn: asyncio.Handle | None = None
        self.written = 0

    @property
    def blocked(self) -> bool:
        """Return True if earlier responses must leave before another can be sent."""
        return self._paused or bool(self._parts)

    @property
    def waits_for_peer(self) -> bool:
        """Return True if nothing can be sent before the peer reads."""
        return self._paused or self._socket.is_waiting

    @property
    def held_bytes(self) -> int:
        """The bytes in memory that have not left. File ranges do not count."""
        return self._gathered + self._parts_bytes + self._transport.get_write_buffer_size()

    def send(self, parts: list[Records]) -> None:
        """Take a whole response. It leaves with the next `flush` at the latest, or as soon as the
        peer reads. Many or large responses leave immediately, so that the transport pauses the
        writer if the peer does not read them."""
        if len(parts) == 1 and not self._paused and not self._parts and isinstance(parts[0], bytes):
            self._bytes.append(parts[0])
            self._gathered += len(parts[0])
            if self._gathered < WRITE_BUFFER_BYTES:
                return
            if self._turn_bytes is None or self._gathered <= self._turn_bytes:
                self.flush()
                return
            parts = []
        self._parts.extend(self._bytes)
        self._parts.extend(parts)
        self._parts_bytes += self._gathered + sum(
            len(part) for part in parts if isinstance(part, bytes | bytearray | memoryview)
        )
        self._bytes.clear()
        self._gathered = 0
        self.resume_parts()

    def flush(self) -> None:
        """Send the small responses; call it at the end of each callback that calls `send`."""
        if self._bytes:
            data = self._bytes[0] if len(self._bytes) == 1 else b"".join(self._bytes)
            self._bytes.clear()
            self._gathered = 0
            self.written += len(data)
            self._transport.write(data)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def drop(self) -> None:
        """The connection is closed: release the files, and the connection itself, so that it is
        freed without the garbage collector."""
        self._ready, self._failed = _do_nothing, _ignore
        self._bytes.clear()
        self._gathered = 0
        self._parts.clear()
        self._parts_bytes = 0
        self._socket.release()
        if self._loading is not None:
            self._loading.cancel()
        if self._turn is not None:
            self._turn.cancel()

    def resume_parts(self) -> None:
        """Send what can be sent now."""
        try:
            if self._turn_bytes is None:
                self._send_parts()
            else:
                self._encrypt_parts(self._turn_bytes)
        except (OSError, ShortRange) as error:
            self._failed(error)

    def _send_parts(self) -> None:
        turn_end = self.written + SEND_BYTES_A_TURN
        while self._parts and not (
            self._paused or self._socket.is_waiting or self._loading or self._transport.is_closing()
        ):
            ready = self._take_bytes()
            if ready:
                self._send_bytes(ready)
            elif self.written < turn_end or not self._socket.is_usable:
                self._send_range()
            else:
                # The other connections have their turn.
                self._socket.wait_writable()

    def _encrypt_parts(self, turn_bytes: int) -> None:
        """Send what one turn of the event loop has time to encrypt."""
        turn_end = self.written + turn_bytes
        while self._parts and not (
            self._paused or self._turn or self._loading or self._transport.is_closing()
        ):
            if self.written >= turn_end:
                self._turn = asyncio.get_running_loop().call_soon(self._next_turn)
                return
            ready = self._take_bytes()
            if ready:
                self._encrypt(ready, turn_end - self.written)
            else:
                self._send_range()

    def _encrypt(self, ready: list[Buffer], most: int) -> None:
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        if len(data) > most:
            rest = memoryview(data)[most:]
            self._parts.appendleft(rest)
            self._parts_bytes += len(rest)
            data = memoryview(data)[:most]
        self.written += len(data)
        self._transport.write(data)

    def _next_turn(self) -> None:
        self._turn = None
        self._ready()

    def _take_bytes(self) -> list[Buffer]:
        """Take what can leave in one call: bytes and small ranges between them, up to a piece."""
        ready: list[Buffer] = []
        taken = 0
        while self._parts and taken < self._piece_bytes:
            part = self._parts[0]
            data: Buffer | None = None
            if isinstance(part, bytes | bytearray | memoryview):
                data = part
                self._parts_bytes -= len(data)
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

    def _send_bytes(self, ready: list[Buffer]) -> None:
        if not self._socket.is_usable:
            self.written += sum(map(len, ready))
            self._transport.writelines(ready)
            return
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        # Bytes before a range leave in the same packet as its beginning.
        sent = self._socket.send(data, more=bool(self._parts))
        self.written += sent
        if sent < len(data):
            self._parts.appendleft(memoryview(data)[sent:])
            self._parts_bytes += len(data) - sent
            self._socket.wait_writable()

    def _send_range(self) -> None:
        part = cast(FileRange, self._parts[0])
        if not hasattr(part, "file"):  # not a file range: it can only be read as a whole
            data = cast(_Readable, part).read()
            self._parts[0] = data
            self._parts_bytes += len(data)
            return
        length = min(len(part) - self._done, self._piece_bytes)
        position = part.position + self._done
        if self._in_memory < self._done + length:
            if not part.file.in_memory(length, position):
                self._loading = asyncio.ensure_future(self._load(part.file, length, position))
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
        if fd is None or not self._socket.is_usable:
            # A simulated file; or the transport has bytes to send before this piece. It soon has
            # more than its buffer takes, pauses, and is empty when it resumes.
            self._transport.write(read_range(file, length, position))
            return length
        sent = self._socket.send_file(fd, length, position)
        if sent == 0:
            raise short_range(0, length, position)
        if sent != length:
            self._socket.wait_writable()
        return sent or 0

    async def _load(self, file: RangeFile, length: int, position: int) -> None:
        """Read a piece into the page cache in a thread."""
        try:
            await self._offload.read(file.bring_in, length, position)
        except OSError as error:
            self._failed(error)
            return
        self._in_memory = self._done + length
        self._loading = None
        self._ready()
