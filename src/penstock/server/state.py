"""What the connections of a server share: its bounds, counters, one receive buffer, and who is
there.

Owns admission and the end of all. It must never know how connections work.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.errors import InvariantBroken
from penstock.limits import READ_BYTES
from penstock.server.bounds import Bounds, Counters
from penstock.server.memory import Memory
from penstock.world import Offload

if TYPE_CHECKING:
    from penstock.server.connection import Connection

log = logging.getLogger(__name__)


class ServerState:
    """`waiting` counts awaitables of handlers, those of lost connections that still unwind
    included."""

    def __init__(self, offload: Offload, bounds: Bounds) -> None:
        self.offload = offload
        self.bounds = bounds
        self.counters = Counters()
        self.shared_buffer = memoryview(bytearray(READ_BYTES))
        self.connections: dict[Connection, None] = {}  # a dict for its order
        self.memory = Memory(bounds.max_node_inflight_bytes, self.connections)
        self.waiting = 0
        self.stopping = False
        self.failure: InvariantBroken | None = None
        self.failed = asyncio.Event()
        self.quiet = asyncio.Event()
        self._full = False

    def admit(self, connection: Connection) -> bool:
        """Registers a connection; False where there is no place. A flood of refusals is told
        once."""
        if self.stopping or len(self.connections) >= self.bounds.max_connections:
            self.counters.connections_refused += 1
            if not self.stopping and not self._full:
                self._full = True
                log.warning(
                    "connections are refused: there are %d (max.connections)", len(self.connections)
                )
            return False
        self.connections[connection] = None
        self.counters.connections = len(self.connections)
        self.counters.connections_opened += 1
        return True

    def forget(self, connection: Connection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self.counters.connections = len(self.connections)
            self._full = False
        self._look()

    def waited(self) -> None:
        self.waiting -= 1
        self._look()

    def _look(self) -> None:
        if self.stopping and not self.connections and not self.waiting:
            self.quiet.set()

    def stop(self) -> None:
        """No new requests; `quiet` is set when all is over."""
        self.stopping = True
        for connection in list(self.connections):
            connection.drain()
        self._look()

    def abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def fail(self, error: InvariantBroken) -> None:
        """A rule of our own code does not hold: no answer may leave any more."""
        log.critical("a broken invariant stops the node", exc_info=error)
        self.stopping = True
        self.failure = self.failure or error
        self.failed.set()
        self.abort()
