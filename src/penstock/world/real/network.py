"""TCP by the running event loop.

asyncio and uvloop set TCP_NODELAY on every TCP transport. `server` adds TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource

from penstock.limits import ACCEPT_BACKLOG
from penstock.world import ProtocolFactory


class RealListener:
    """Closing it leaves accepted connections open, and `wait_closed` does not wait for them."""

    __slots__ = ("_server", "port")

    def __init__(self, server: asyncio.Server, port: int) -> None:
        self._server = server
        self.port = port

    async def accept(self) -> None:
        await self._server.start_serving()

    def close(self) -> None:
        self._server.close()

    async def wait_closed(self) -> None:
        # asyncio's own wait_closed waits for the connections too since Python 3.12. The socket
        # itself is closed within one iteration of the loop.
        await asyncio.sleep(0)


class RealNetwork:
    __slots__ = ()

    def max_descriptors(self) -> int | None:
        _raise_open_files_limit()
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if soft == resource.RLIM_INFINITY else soft

    async def listen(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        backlog: int = ACCEPT_BACKLOG,
        *,
        accepting: bool = True,
    ) -> RealListener:
        """Listen on a port; an empty host listens on every address."""
        _raise_open_files_limit()
        server = await _serve(factory, host, port, backlog, accepting)
        ports = _ports(server)
        if len(set(ports)) > 1:
            # A name with several addresses got a different free port on each. Clients expect one,
            # so listen again on the first one's port at all addresses.
            server.close()
            await asyncio.sleep(0)
            server = await _serve(factory, host, ports[0], backlog, accepting)
        return RealListener(server, ports[0])

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await asyncio.get_running_loop().create_connection(factory, host, port)


def _raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard limit. The usual soft limit of 1,024 is too
    low for a node, which needs a descriptor per client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS reports an unlimited hard limit, and refuses to set it.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(
    factory: ProtocolFactory, host: str, port: int, backlog: int, accepting: bool
) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    return await loop.create_server(
        factory, host or None, port, backlog=backlog, reuse_address=True, start_serving=accepting
    )


def _ports(server: asyncio.Server) -> list[int]:
    return [socket.getsockname()[1] for socket in server.sockets]
