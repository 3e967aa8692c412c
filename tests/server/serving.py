"""A server with small handlers, and a client that sends and receives frames."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from penstock.config.node import NodeConfig, read_node_config
from penstock.handlers.context import RequestContext
from penstock.protocol.framing import frame_request, split_frames
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.server.dispatch import Dispatch, Handler
from penstock.server.server import Server
from penstock.server.state import Bounds
from penstock.world import World

PRODUCE, FETCH, HEARTBEAT, API_VERSIONS = 0, 1, 12, 18
LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Versions:
    first: int
    last: int
    advertised_first: int


SERVED = {
    PRODUCE: Versions(3, 13, 0),
    HEARTBEAT: Versions(0, 4, 0),
    API_VERSIONS: Versions(0, 4, 0),
    FETCH: Versions(4, 18, 4),
}


class Client(asyncio.Protocol):
    """Collects whole responses as (correlation id, the bytes after it)."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.responses: list[tuple[int, bytes]] = []
        self.lost = asyncio.Event()
        self._data = bytearray()
        self._more = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) >= 4 and len(self._data) >= 4 + struct.unpack_from(">i", self._data)[0]:
            self._take_responses()

    def _take_responses(self) -> None:
        frames, taken = split_frames(bytes(self._data), LARGEST)
        self.responses += [
            (struct.unpack_from(">i", frame)[0], bytes(frame[4:])) for frame in frames
        ]
        del self._data[:taken]
        self._more.set()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost.set()
        self._more.set()

    @property
    def order(self) -> list[int]:
        return [correlation for correlation, _ in self.responses]

    async def wait_responses(self, count: int) -> list[int]:
        """Wait for so many responses, or the end of the connection. Return the correlation ids."""
        async with asyncio.timeout(30):
            while len(self.responses) < count and not self.lost.is_set():
                self._more.clear()
                await self._more.wait()
        return self.order

    async def wait_lost(self) -> None:
        async with asyncio.timeout(30):
            await self.lost.wait()

    def send(self, *requests: bytes) -> None:
        self.transport.write(b"".join(requests))


def heartbeat(correlation: int, member: str = "", version: int = 4) -> bytes:
    """Return a request; its member id says what the handler does."""
    parts = frame_request(
        HeartbeatRequest(group_id="g", member_id=member), version, correlation, "test"
    )
    return b"".join(cast("list[bytes]", parts))


def raw_request(key: int, version: int, correlation: int, body: bytes = b"") -> bytes:
    data = struct.pack(">hhih", key, version, correlation, -1) + body
    return struct.pack(">i", len(data)) + data


def respond_now(
    _node: Any, request: HeartbeatRequest, _context: RequestContext
) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=len(request.member_id))


def config(
    listeners: str = "PLAINTEXT://localhost:0,CONTROLLER://localhost:0", more: str = ""
) -> NodeConfig:
    text = (
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"listeners={listeners}\n"
    )
    return read_node_config((text + more).encode(), "server.properties")


@dataclass(frozen=True, slots=True)
class Served:
    world: World
    server: Server

    async def connect(self, listener: str = "PLAINTEXT") -> Client:
        _, protocol = await self.world.network.connect(
            Client, "localhost", self.server.ports[listener]
        )
        return cast(Client, protocol)


@asynccontextmanager
async def serving(
    world: World,
    handler: Handler | Mapping[int, Handler],
    bounds: Bounds | None = None,
    node: object = None,
) -> AsyncIterator[Served]:
    handlers: Mapping[int, Handler] = (
        handler if isinstance(handler, Mapping) else {HEARTBEAT: handler}
    )
    dispatch = Dispatch(node, {key: SERVED[key] for key in handlers}, handlers.__getitem__)
    server = Server(world, config(), dispatch, bounds)
    await server.start()
    await server.accept_clients()
    try:
        yield Served(world, server)
    finally:
        await server.stop(within_s=1)
