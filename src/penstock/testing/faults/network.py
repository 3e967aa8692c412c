"""The network of a node that a test can cut from other nodes.

Each connection between two nodes has a side that opened it. That side holds back what it sends and
what it receives while the two are cut from each other, so nothing passes in either direction and
neither end learns of it, as with packets that a switch drops. When the cut is healed, what was held
back passes, unless an end has given up. New connections wait until then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, cast

from penstock.ids import Buffer
from penstock.testing.faults.board import FaultBoard
from penstock.world import Network, ProtocolFactory
from penstock.world.wrapped_network import WrappedNetwork

# How soon a healed connection continues.
_POLL_S = 0.01


class CuttableNetwork(WrappedNetwork):
    """`ports` are the nodes of the ports that nodes connect to."""

    def __init__(
        self, network: Network, board: FaultBoard, node_id: int, ports: Mapping[int, int]
    ) -> None:
        super().__init__(network)
        self._board = board
        self._node_id = node_id
        self._ports = ports

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        target = self._ports.get(port, self._node_id)
        if target == self._node_id:
            return await self._network.connect(factory, host, port)
        while self.is_cut(target):
            await asyncio.sleep(_POLL_S)
        _transport, protocol = await self._network.connect(
            lambda: _Link(self, target, factory()), host, port
        )
        link = cast(_Link, protocol)
        return link.transport, link.protocol

    def is_cut(self, target: int) -> bool:
        """Return whether a test has cut this node from another one."""
        return self._board.faults.is_cut(self._node_id, target)


class _Link(asyncio.Protocol):
    """Stands between a connection and its protocol, on the side that opened it."""

    transport: _LinkTransport

    def __init__(
        self, network: CuttableNetwork, target: int, protocol: asyncio.BaseProtocol
    ) -> None:
        self.protocol = protocol
        self.is_reading = True
        self._network = network
        self._target = target
        self._sent: list[bytes] = []
        self._received: deque[bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None
        # The end of the connection, which the protocol has not seen yet.
        self._lost: tuple[Exception | None] | None = None

    @property
    def held_bytes(self) -> int:
        return sum(map(len, self._sent))

    def send(self, transport: asyncio.Transport, data: Buffer) -> None:
        if self._holds():
            self._sent.append(bytes(data))
        else:
            transport.write(data)

    def _holds(self) -> bool:
        """Return whether data must wait: the nodes are cut off, or earlier data waits."""
        if self._timer is None and self._network.is_cut(self._target):
            self._timer = asyncio.get_running_loop().call_later(_POLL_S, self._check)
        return self._timer is not None

    def _check(self) -> None:
        self._timer = None
        if self._holds():
            return
        sent, self._sent = self._sent, []
        for data in sent:
            self.transport.write(data)
        self.deliver()

    def deliver(self) -> None:
        """Pass on what has been received, while the protocol reads."""
        while self._received and self.is_reading and not self._holds():
            data = self._received.popleft()
            if isinstance(self.protocol, asyncio.BufferedProtocol):
                buffer = memoryview(self.protocol.get_buffer(len(data))).cast("B")
                count = min(len(buffer), len(data))
                buffer[:count] = data[:count]
                if count < len(data):
                    self._received.appendleft(data[count:])
                self.protocol.buffer_updated(count)
            else:
                cast(asyncio.Protocol, self.protocol).data_received(data)
        if self._lost is not None and not self._received and not self._holds():
            (error,), self._lost = self._lost, None
            self.protocol.connection_lost(error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = _LinkTransport(self, cast(asyncio.Transport, transport))
        self.protocol.connection_made(self.transport)

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self.deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport.closed_here:
            if self._timer is not None:
                self._timer.cancel()
            self.protocol.connection_lost(exc)
        else:
            self._lost = (exc,)
            self.deliver()

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()


class _LinkTransport(asyncio.Transport):
    """What the protocol of a link writes to."""

    def __init__(self, link: _Link, transport: asyncio.Transport) -> None:
        super().__init__()
        self._link = link
        self._transport = transport
        self.closed_here = False

    def write(self, data: Buffer) -> None:
        self._link.send(self._transport, data)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.closed_here = True
        self._transport.close()

    def abort(self) -> None:
        self.closed_here = True
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._link.is_reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._link.is_reading = True
        self._transport.resume_reading()
        asyncio.get_running_loop().call_soon(self._link.deliver)

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + self._link.held_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)
