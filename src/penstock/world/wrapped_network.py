"""A network that changes how connections are opened, and listens as the network that it wraps."""

from __future__ import annotations

from penstock.limits import ACCEPT_BACKLOG
from penstock.world import Listener, Network, ProtocolFactory


class WrappedNetwork:
    """Subclasses have `connect`."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def max_descriptors(self) -> int | None:
        return self._network.max_descriptors()

    async def listen(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        backlog: int = ACCEPT_BACKLOG,
        *,
        accepting: bool = True,
    ) -> Listener:
        return await self._network.listen(factory, host, port, backlog, accepting=accepting)
