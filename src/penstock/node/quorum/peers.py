"""Connections to the other nodes of the quorum.

Each node has two: one for Fetch and FetchSnapshot, whose responses a leader may delay, and one for
all other requests. A request fails as soon as its connection closes: that is how a follower notices
the loss of its leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import TypeVar

from penstock.client.connection import Connection, open_connection
from penstock.client.errors import ConnectionFailed
from penstock.config.quorum import Address
from penstock.world import World

T = TypeVar("T")


class _Purpose(Enum):
    FETCH = auto()
    CONTROL = auto()


class Peers:
    """`address_of` returns a node's address, None if it is unknown."""

    def __init__(
        self,
        world: World,
        client_id: str,
        timeout_s: float,
        address_of: Callable[[int], Address | None],
    ) -> None:
        # Node id -> when its connection closed or could not be made; removed once a request
        # succeeds.
        self.disconnected: dict[int, float] = {}
        self._world = world
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._address_of = address_of
        self._connections: dict[tuple[int, _Purpose], _PeerConnection] = {}

    async def fetch(
        self, node_id: int, request: object, response_type: type[T], max_wait_s: float = 0.0
    ) -> T:
        """Send a Fetch or FetchSnapshot, whose response may be delayed by `max_wait_s`."""
        return await self._call(_Purpose.FETCH, node_id, request, response_type, max_wait_s)

    async def call(self, node_id: int, request: object, response_type: type[T]) -> T:
        """Send a request and return its response. Raises KafkaError, mostly ConnectionFailed."""
        return await self._call(_Purpose.CONTROL, node_id, request, response_type, 0.0)

    async def call_at(
        self, node_id: int, address: Address, request: object, response_type: type[T]
    ) -> T:
        """Send a request to a node at an address that a request gave."""
        return await self._call(_Purpose.CONTROL, node_id, request, response_type, 0.0, address)

    async def _call(
        self,
        purpose: _Purpose,
        node_id: int,
        request: object,
        response_type: type[T],
        max_wait_s: float,
        address: Address | None = None,
    ) -> T:
        address = address or self._address_of(node_id)
        if address is None:
            raise ConnectionFailed(f"the address of node {node_id} is unknown")
        try:
            connection = await self._connection(node_id, purpose, address).connected(
                self._world, self._client_id, self._timeout_s
            )
            timeout_s = self._timeout_s + max_wait_s
            response = await connection.call(request, response_type, timeout_s=timeout_s)
        except ConnectionFailed:
            self.disconnected.setdefault(node_id, self._world.clock.monotonic())
            raise
        self.disconnected.pop(node_id, None)
        return response

    def _connection(self, node_id: int, purpose: _Purpose, address: Address) -> _PeerConnection:
        peer = self._connections.get((node_id, purpose))
        if peer is None or peer.address != address:
            if peer is not None:
                peer.close()
            peer = self._connections[node_id, purpose] = _PeerConnection(address)
        return peer

    def close(self) -> None:
        for peer in self._connections.values():
            peer.close()
        self._connections.clear()


class _PeerConnection:
    """One connection, made when it is first needed and again after it closed. Concurrent callers
    share one attempt."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._connection: Connection | None = None
        self._attempt: asyncio.Task[Connection] | None = None
        self._is_closed = False

    async def connected(self, world: World, client_id: str, timeout_s: float) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if self._attempt is None:
            host, port = self.address.host, self.address.port
            opening = open_connection(
                world,
                host,
                port,
                client_id=client_id,
                connect_timeout_s=timeout_s,
                request_timeout_s=timeout_s,
            )
            self._attempt = asyncio.create_task(opening)
            self._attempt.add_done_callback(self._on_attempt_done)
        # Shielded: a cancelled caller must not end the attempt that others wait for.
        return await asyncio.shield(self._attempt)

    def _on_attempt_done(self, attempt: asyncio.Task[Connection]) -> None:
        self._attempt = None
        if not attempt.cancelled() and attempt.exception() is None:
            self._connection = attempt.result()
            if self._is_closed:
                self._connection.close()

    def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()
