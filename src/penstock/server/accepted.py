"""A connection that has just come: who it is from, and how its socket is set. Simulated transports
have no socket."""

from __future__ import annotations

import asyncio
import socket

from penstock.handlers.context import ConnectionHandle
from penstock.limits import WRITE_BUFFER_BYTES
from penstock.server.bounds import Bounds
from penstock.server.context import Origin


def origin_of(transport: asyncio.Transport, listener_name: str, now: float) -> Origin:
    # A peer that is gone already has no name any more.
    local = transport.get_extra_info("sockname") or ("", 0)
    peer = transport.get_extra_info("peername") or ("unknown", 0)
    return Origin(
        listener_name, str(local[0]), int(local[1]), f"{peer[0]}:{peer[1]}", ConnectionHandle(now)
    )


def set_buffers(transport: asyncio.Transport, bounds: Bounds) -> None:
    transport.set_write_buffer_limits(WRITE_BUFFER_BYTES, 0)
    for option, size in (
        (socket.SO_SNDBUF, bounds.send_buffer_bytes),
        (socket.SO_RCVBUF, bounds.receive_buffer_bytes),
    ):
        own = transport.get_extra_info("socket")
        if size is not None and own is not None:
            own.setsockopt(socket.SOL_SOCKET, option, size)
