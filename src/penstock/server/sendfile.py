"""Sending file ranges: what the server needs of a file, and the socket beneath a transport.

A read of pages that are not in the page cache would block the event loop until the disk has
answered. So the writer asks first, and a thread brings in what is missing.

uvloop implements neither loop.sendfile nor loop.sock_sendfile, and does not let others watch the
descriptor of a transport; a duplicate of the descriptor is accepted. The socket may be used only
while the transport itself has nothing to send: otherwise bytes would overtake each other. Simulated
transports have no socket.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Any, Protocol

from penstock.ids import Buffer
from penstock.limits import MAX_WATCHED_SOCKETS, UNWATCHED_SOCKET_MAX_S, UNWATCHED_SOCKET_S

_CAN_SEND_FILES = hasattr(os, "sendfile")
# Linux: the next call sends more, so a segment that is not full may wait for it.
_MORE = getattr(socket, "MSG_MORE", 0)


class RangeFile(Protocol):
    def pread(self, length: int, position: int, /) -> bytes: ...

    def pread_at_once(self, length: int, position: int, /) -> bytes | bytearray | None: ...

    def in_memory(self, length: int, position: int, /) -> bool: ...

    def bring_in(self, length: int, position: int, /) -> None: ...

    def fileno(self) -> int: ...


class FileRange(Protocol):
    """What a log returns instead of bytes."""

    @property
    def file(self) -> RangeFile: ...

    @property
    def position(self) -> int: ...

    def __len__(self) -> int: ...


class ShortRange(Exception):
    """A file has fewer bytes than its range. A part of the response has left, so the connection
    cannot be used any more."""


def descriptor(file: RangeFile) -> int | None:
    """Return None for a simulated file, and for a closed one: reading the latter raises the
    error."""
    try:
        return file.fileno()
    except OSError:
        return None


def read_range(file: RangeFile, length: int, position: int) -> bytes:
    data = file.pread(length, position)
    if len(data) != length:
        raise short_range(len(data), length, position)
    return data


def short_range(count: int, length: int, position: int) -> ShortRange:
    return ShortRange(
        f"a file returned {count} of {length} bytes at {position}: it was truncated while a "
        "response was being sent"
    )


def _do_nothing() -> None:
    """Stands for the callback of a closed connection."""


class SendSocket:
    """The socket of one transport. `writable` is called once after each `wait_writable`. The event
    loop watches the descriptor until `writable` returns without waiting again.

    `all_watched` are the duplicates of all connections. Their number is limited, since files need
    descriptors too; beyond, a timer takes the place of the event loop's watching.
    """

    __slots__ = (
        "_all_watched",
        "_loop",
        "_socket",
        "_timer",
        "_timer_s",
        "_transport",
        "_watched",
        "_writable",
        "is_waiting",
    )

    def __init__(
        self, transport: asyncio.Transport, writable: Callable[[], None], all_watched: set[int]
    ) -> None:
        self._transport = transport
        self._writable = writable
        self._all_watched = all_watched
        self._timer: asyncio.Handle | None = None
        self._timer_s = UNWATCHED_SOCKET_S
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._watched: int | None = None
        self.is_waiting = False

    @property
    def is_usable(self) -> bool:
        """Return True if there is a socket and the transport has nothing to send before.

        The descriptor of a closing transport may be closed already, and belong to another file.
        """
        transport = self._transport
        return (
            _CAN_SEND_FILES
            and transport.get_write_buffer_size() == 0
            and not transport.is_closing()
            and (self._socket is not None or self._transport_socket() is not None)
        )

    def send(self, data: Buffer, *, more: bool) -> int:
        """Return how many bytes left. `more` says that others follow immediately. Raises
        OSError."""
        if self._socket is None:
            found = self._transport_socket()
            self._socket = socket.socket(found.family, found.type, found.proto, found.fileno())
        try:
            sent = self._socket.send(data, _MORE if more else 0)
        except BlockingIOError:
            return 0
        self._timer_s = UNWATCHED_SOCKET_S
        return sent

    def send_file(self, fd: int, length: int, position: int) -> int | None:
        """Return how many bytes left: 0 at the end of the file, None if the socket is full. Raises
        OSError."""
        own = self._socket or self._transport_socket()
        try:
            sent = os.sendfile(own.fileno(), fd, position, length)
        except BlockingIOError:
            return None
        self._timer_s = UNWATCHED_SOCKET_S
        return sent

    def wait_writable(self) -> None:
        self.is_waiting = True
        if self._watched is not None:
            return
        self._watched = self._duplicate()
        if self._watched is None:
            self._timer = self._loop.call_later(self._timer_s, self._ready)
            self._timer_s = min(2 * self._timer_s, UNWATCHED_SOCKET_MAX_S)
        else:
            self._all_watched.add(self._watched)
            self._loop.add_writer(self._watched, self._ready)

    def _duplicate(self) -> int | None:
        if len(self._all_watched) >= MAX_WATCHED_SOCKETS:
            return None
        try:
            return os.dup((self._socket or self._transport_socket()).fileno())
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return None

    def _stop_watching(self) -> None:
        self.is_waiting = False
        if self._timer is not None:
            self._timer.cancel()
        watched, self._watched = self._watched, None
        if watched is not None:
            self._all_watched.discard(watched)
            self._loop.remove_writer(watched)
            os.close(watched)

    def release(self) -> None:
        """Leave the descriptor to the transport, which closes it, and drop the callback."""
        self._stop_watching()
        self._writable = _do_nothing
        if self._socket is not None:
            self._socket.detach()
            self._socket = None

    def _ready(self) -> None:
        self.is_waiting = False
        self._writable()
        if not self.is_waiting:
            self._stop_watching()

    def _transport_socket(self) -> Any:
        encrypted = self._transport.get_extra_info("ssl_object") is not None
        return None if encrypted else self._transport.get_extra_info("socket")
