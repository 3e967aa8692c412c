"""The socket beneath a transport, for what transports cannot do: sending from a file, and waiting
until there is room for more.

uvloop implements neither loop.sendfile nor loop.sock_sendfile, and lets nobody watch the descriptor
of a transport; it does not mind a duplicate. The socket may be used only while the transport itself
holds nothing, or bytes would overtake each other. Simulated transports have none.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

_CAN_SEND_FILES = hasattr(os, "sendfile")


class Outlet:
    __slots__ = ("_loop", "_roomy", "_transport", "_watched")

    def __init__(self, transport: asyncio.Transport, roomy: Callable[[], None]) -> None:
        """`roomy` is called once after each `wait_room`."""
        self._transport = transport
        self._roomy = roomy
        self._loop = asyncio.get_running_loop()
        self._watched: int | None = None

    @property
    def usable(self) -> bool:
        """Whether there is a socket, and what is sent now comes behind all that was written before.
        That of a closing transport may be closed already, and its number another's."""
        transport = self._transport
        return (
            _CAN_SEND_FILES
            and transport.get_write_buffer_size() == 0
            and not transport.is_closing()
            and self._socket is not None
        )

    @property
    def waiting(self) -> bool:
        return self._watched is not None

    def send_file(self, fd: int, length: int, position: int) -> int | None:
        """How many bytes left: none at the end of the file. None: the socket is full. OSError."""
        try:
            return os.sendfile(self._socket.fileno(), fd, position, length)
        except BlockingIOError:
            return None

    def wait_room(self) -> None:
        self._watched = os.dup(self._socket.fileno())
        self._loop.add_writer(self._watched, self._has_room)

    def stop_waiting(self) -> None:
        watched, self._watched = self._watched, None
        if watched is not None:
            self._loop.remove_writer(watched)
            os.close(watched)

    def _has_room(self) -> None:
        self.stop_waiting()
        self._roomy()

    @property
    def _socket(self) -> Any:
        encrypted = self._transport.get_extra_info("ssl_object") is not None
        return None if encrypted else self._transport.get_extra_info("socket")
