"""Connections to the other nodes of the quorum. Each has two: one for fetches, which a leader holds
back, and one for all else.

Owns connections and nothing of what is said on them. A call fails at once when its connection
closes: that is how the loss of a leader shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from penstock.client.connection import Connection, open_connection
from penstock.client.faults import ConnectionFailed
from penstock.config.quorum import Address
from penstock.world import World

T = TypeVar("T")


class Peers:
    """`address_of` tells where a node is; None where nobody knows."""

    def __init__(
        self,
        world: World,
        client_id: str,
        timeout_s: float,
        address_of: Callable[[int], Address | None],
    ) -> None:
        # Nodes whose connection closed or could not be made, and when; until they are reached
        # again.
        self.lost: dict[int, float] = {}
        self._world = world
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._address_of = address_of
        self._lanes: dict[tuple[int, str], _Lane] = {}

    async def call(
        self, node_id: int, lane: str, request: object, response: type[T], wait_s: float = 0.0
    ) -> T:
        """`wait_s` is how long the other side may hold the answer back. KafkaError, most often
        ConnectionFailed, where there is none."""
        address = self._address_of(node_id)
        if address is None:
            raise ConnectionFailed(f"nobody knows where node {node_id} is")
        try:
            connection = await self._lane(node_id, lane, address).connected(
                self._world, self._client_id, self._timeout_s
            )
            answer = await connection.call(request, response, timeout_s=self._timeout_s + wait_s)
        except ConnectionFailed:
            self.lost.setdefault(node_id, self._world.clock.monotonic())
            raise
        self.lost.pop(node_id, None)
        return answer

    def _lane(self, node_id: int, lane: str, address: Address) -> _Lane:
        found = self._lanes.get((node_id, lane))
        if found is None or found.address != address:
            if found is not None:
                found.close()
            found = self._lanes[node_id, lane] = _Lane(address)
        return found

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()


class _Lane:
    """One connection, made when it is first needed and again after it closed. Callers that come
    meanwhile wait for it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._connection: Connection | None = None
        self._attempt: asyncio.Task[Connection] | None = None
        self._closed = False

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
            self._attempt.add_done_callback(self._attempted)
        # Shielded: one caller that gives up must not end the attempt of the others.
        return await asyncio.shield(self._attempt)

    def _attempted(self, attempt: asyncio.Task[Connection]) -> None:
        self._attempt = None
        if not attempt.cancelled() and attempt.exception() is None:
            self._connection = attempt.result()
            if self._closed:
                self._connection.close()

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()
