"""The socket beneath a transport: the sizes of its buffers, and the bytes that the kernel has in
them.

The kernel takes bytes from a peer while the server does not read them, and keeps what it sent until
the peer has acknowledged it. Simulated transports have no socket.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import sys
import termios
from typing import Any

from penstock.limits import SAME_HOST_SEND_BUFFER_BYTES, WRITE_BUFFER_BYTES

_IS_LINUX = sys.platform == "linux"


def set_buffers(
    transport: asyncio.Transport, send_bytes: int | None, receive_bytes: int | None
) -> None:
    """Set the sizes of the buffers. The operating system chooses those that are None."""
    transport.set_write_buffer_limits(WRITE_BUFFER_BYTES, 0)
    own_socket = transport.get_extra_info("socket")
    if own_socket is None:
        return
    if send_bytes is None and _is_same_host(transport):
        send_bytes = SAME_HOST_SEND_BUFFER_BYTES
    if send_bytes is not None:
        own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
    if receive_bytes is not None:
        own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)


def _is_same_host(transport: asyncio.Transport) -> bool:
    local, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return bool(local and peer and local[0] == peer[0])


def unread_bytes(transport: asyncio.Transport) -> int | None:
    """Return how many bytes the peer has sent that were not read yet; None without a socket."""
    return _count(transport, termios.FIONREAD)


def untaken_bytes(transport: asyncio.Transport) -> int:
    """Return how many bytes the kernel has that the peer has not acknowledged; 0 where this is not
    known."""
    return _count(transport, termios.TIOCOUTQ) or 0


def _count(transport: asyncio.Transport, request: int) -> int | None:
    own_socket: Any = transport.get_extra_info("socket")
    # The descriptor of a closing transport may be closed already, and belong to another file.
    if own_socket is None or not _IS_LINUX or transport.is_closing():
        return None
    return int.from_bytes(fcntl.ioctl(own_socket.fileno(), request, bytes(4)), sys.byteorder)
