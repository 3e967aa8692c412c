"""TCP by the running event loop. Owns listening and connecting; what flows is between transport and
protocol.

TCP_NODELAY needs no code here: asyncio and uvloop both set it on every TCP transport. TLS wraps
around this in `server`, not here.
"""

from __future__ import annotations

import asyncio

from penstock.limits import ACCEPT_BACKLOG
from penstock.world import ProtocolFactory
from penstock.world.real.open_files import raise_open_files


class RealListener:
    """Closing it leaves the connections it took alone, and waiting for its end does not wait for
    theirs."""

    __slots__ = ("_server", "port")

    def __init__(self, server: asyncio.Server, port: int) -> None:
        self._server = server
        self.port = port

    async def accept(self) -> None:
        await self._server.start_serving()

    def close(self) -> None:
        self._server.close()

    async def wait_closed(self) -> None:
        # asyncio's own wait_closed waits for the connections too (since 3.12). The socket itself is
        # closed within one turn of the loop.
        await asyncio.sleep(0)


class RealNetwork:
    __slots__ = ()

    async def listen(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        backlog: int = ACCEPT_BACKLOG,
        *,
        accepting: bool = True,
    ) -> RealListener:
        """An empty host listens on every address."""
        raise_open_files()
        server = await _serve(factory, host, port, backlog, accepting)
        ports = _ports(server)
        if len(set(ports)) > 1:
            # A name with several addresses got a free port on each. Clients expect one: the first
            # one's, taken on all of them.
            server.close()
            await asyncio.sleep(0)
            server = await _serve(factory, host, ports[0], backlog, accepting)
        return RealListener(server, ports[0])

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await asyncio.get_running_loop().create_connection(factory, host, port)


async def _serve(
    factory: ProtocolFactory, host: str, port: int, backlog: int, accepting: bool
) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    return await loop.create_server(
        factory, host or None, port, backlog=backlog, reuse_address=True, start_serving=accepting
    )


def _ports(server: asyncio.Server) -> list[int]:
    return [socket.getsockname()[1] for socket in server.sockets]
