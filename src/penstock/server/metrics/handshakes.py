"""The TLS handshakes of the metrics listener.

They have the bounds of its connections: a number, and a time. A new one takes the place of the
oldest of the address that has the most, so peers that do not complete theirs keep no scrape out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from penstock.limits import MAX_SCRAPE_CONNECTIONS, SCRAPE_HEAD_S
from penstock.security.tls.alerts import handshake_socket
from penstock.server.tls.failures import FailureLog, reason_of

_NAME = "the metrics listener"


class Handshakes:
    """Make it within a running event loop. `context` returns that of a new connection."""

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        make_protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._context = context
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        # In the order of arrival.
        self._running: dict[socket.socket, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures = FailureLog()
        self._stopping = False

    def arrive(self, accepted: socket.socket, address: str) -> None:
        if self._stopping:
            accepted.close()
            return
        if len(self._running) >= MAX_SCRAPE_CONNECTIONS:
            counts = Counter(self._running.values())
            self._end(max(self._running, key=lambda other: counts[self._running[other]]))
        self._running[accepted] = address
        task = self._loop.create_task(self._run(accepted, address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        self._stopping = True
        for accepted in list(self._running):
            self._end(accepted)

    def _end(self, accepted: socket.socket) -> None:
        """The transport sees the end of the stream, and the task the failure."""
        del self._running[accepted]
        with contextlib.suppress(OSError):
            accepted.shutdown(socket.SHUT_RDWR)

    async def _run(self, accepted: socket.socket, address: str) -> None:
        handshake_socket.set(accepted)
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                accepted,
                ssl=self._context(),
                ssl_handshake_timeout=SCRAPE_HEAD_S,
            )
        except OSError as error:
            if accepted in self._running:
                self._failures.add(address, _NAME, reason_of(error), self._loop.time())
        finally:
            self._running.pop(accepted, None)
