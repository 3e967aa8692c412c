"""The listening sockets of a TLS listener.

An event loop's own server starts the handshake of every connection that it accepts, whatever their
number. So the sockets are accepted here, and `handshakes` decides when each begins. The loop's own
server also could not be given a new SSLContext.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Callable

from penstock.limits import ACCEPT_RETRY_S, ACCEPTED_A_TURN
from penstock.world import TOO_MANY_FILES

log = logging.getLogger(__name__)

# The process or the machine cannot take another connection now.
_EXHAUSTED = TOO_MANY_FILES | {errno.ENOBUFS, errno.ENOMEM}
# The peer of a waiting connection has gone, or a signal arrived.
_TRY_NEXT = (BlockingIOError, InterruptedError, ConnectionError)

Arrive = Callable[[socket.socket, str], None]


class TlsListener:
    """`arrive` is called with each accepted socket and the address of its peer. `listen` makes
    it."""

    def __init__(self, sockets: list[socket.socket], backlog: int, arrive: Arrive) -> None:
        self.port: int = sockets[0].getsockname()[1]
        self._sockets = sockets
        self._backlog = backlog
        self._arrive = arrive
        self._loop = asyncio.get_running_loop()
        self._timers: dict[socket.socket, asyncio.TimerHandle] = {}
        self._accepting = False

    async def accept(self) -> None:
        if self._accepting:
            return
        self._accepting = True
        for listening in self._sockets:
            listening.listen(self._backlog)
            self._loop.add_reader(listening, self._take, listening)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for listening in self._sockets:
            if self._accepting and listening not in self._timers:
                self._loop.remove_reader(listening)
            listening.close()
        self._timers.clear()
        self._sockets = []

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)

    def _take(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_A_TURN):
            try:
                accepted, address = listening.accept()
            except _TRY_NEXT:
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(listening, error)
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._arrive(accepted, str(address[0]))

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        log.error(
            "cannot accept connections on port %d: %s. Trying again in %g s",
            self.port,
            error.strerror,
            ACCEPT_RETRY_S,
        )
        self._loop.remove_reader(listening)
        self._timers[listening] = self._loop.call_later(ACCEPT_RETRY_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        del self._timers[listening]
        self._loop.add_reader(listening, self._take, listening)


async def listen(
    arrive: Arrive, host: str, port: int, backlog: int, *, accepting: bool
) -> TlsListener:
    """Bind a port on every address of a host; an empty host stands for every address of the
    machine. Raises OSError. Without `accepting` the kernel refuses connections until `accept`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _name, address in dict.fromkeys(found):
            try:
                bound = socket.socket(family, kind, protocol)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT and len(found) > 1:
                    continue  # a machine without IPv6
                raise
            sockets.append(bound)
            _prepare(bound, family)
            # Clients expect one port at all addresses.
            chosen = port or (sockets[0].getsockname()[1] if len(sockets) > 1 else 0)
            bound.bind((address[0], chosen, *address[2:]))
        listener = TlsListener(sockets, backlog, arrive)
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    if accepting:
        await listener.accept()
    return listener


def _prepare(bound: socket.socket, family: int) -> None:
    bound.setblocking(False)
    if sys.platform != "win32":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        # An IPv4 and an IPv6 listener may share a port.
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
