"""A cut holds back what two nodes send each other, and `heal` lets it pass."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from penstock.testing.faults.board import FaultBoard, Faults
from penstock.testing.faults.network import CuttableNetwork
from penstock.world.real import RealNetwork

T = TypeVar("T")

CUT = Faults(cuts=frozenset({(1, 2)}))
# Longer than a held connection takes to look again.
A_WHILE_S = 0.05


class Echo(asyncio.Protocol):
    """Node 2: sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if data == b"end":
            self._transport.close()
        else:
            self._transport.write(data)


class Reader(asyncio.Protocol):
    """Node 1."""

    def __init__(self) -> None:
        self.received = b""
        self.lost = asyncio.Event()
        self._arrived = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._arrived.set()

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost.set()

    async def read(self, expected: bytes) -> None:
        async with asyncio.timeout(5):
            while self.received != expected:
                await self._arrived.wait()
                self._arrived.clear()


class BufferedReader(asyncio.BufferedProtocol):
    """As a follower reads: into its own small buffer, with pauses."""

    def __init__(self) -> None:
        self.received = b""
        self.transport: asyncio.Transport
        self._buffer = bytearray(4)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self.transport.pause_reading()


class Nodes:
    def __init__(self, board: FaultBoard) -> None:
        self.board = board
        self.real = RealNetwork()

    async def connect(self, protocol: type[T]) -> tuple[asyncio.Transport, T]:
        listener = await self.real.listen(Echo, "127.0.0.1", 0)
        network = CuttableNetwork(self.real, self.board, 1, {listener.port: 2})
        self.connecting = network.connect(cast(Any, protocol), "127.0.0.1", listener.port)
        transport, made = await self.connecting
        return transport, cast(T, made)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(FaultBoard(tmp_path))


def test_without_a_cut_data_passes(nodes: Nodes) -> None:
    async def test() -> None:
        transport, reader = await nodes.connect(Reader)
        transport.write(b"one")
        transport.writelines([b"two", b"three"])
        await reader.read(b"onetwothree")
        transport.close()

    run(test())


def test_what_is_sent_during_a_cut_arrives_after_it(nodes: Nodes) -> None:
    async def test() -> None:
        transport, reader = await nodes.connect(Reader)
        nodes.board.publish(CUT)
        transport.write(b"one")
        await asyncio.sleep(A_WHILE_S)
        assert reader.received == b""
        nodes.board.publish(Faults())
        await reader.read(b"one")
        transport.write(b"two")
        await reader.read(b"onetwo")
        transport.abort()

    run(test())


def test_what_is_under_way_when_the_cut_begins_arrives_after_it(nodes: Nodes) -> None:
    async def test() -> None:
        transport, reader = await nodes.connect(Reader)
        transport.write(b"one")
        nodes.board.publish(CUT)
        await asyncio.sleep(A_WHILE_S)
        assert reader.received == b""
        nodes.board.publish(Faults())
        await reader.read(b"one")
        transport.abort()

    run(test())


def test_a_connection_that_ends_during_a_cut_ends_for_the_other_side_after_it(
    nodes: Nodes,
) -> None:
    async def test() -> None:
        transport, reader = await nodes.connect(Reader)
        transport.write(b"end")
        nodes.board.publish(CUT)
        await asyncio.sleep(A_WHILE_S)
        assert not reader.lost.is_set()
        nodes.board.publish(Faults())
        async with asyncio.timeout(5):
            await reader.lost.wait()
        assert transport.is_closing()

    run(test())


def test_a_side_that_gives_up_during_a_cut_closes_at_once(nodes: Nodes) -> None:
    async def test() -> None:
        transport, reader = await nodes.connect(Reader)
        nodes.board.publish(CUT)
        transport.write(b"one")
        transport.abort()
        async with asyncio.timeout(5):
            await reader.lost.wait()

    run(test())


def test_new_connections_wait_for_the_end_of_the_cut(nodes: Nodes) -> None:
    async def test() -> None:
        nodes.board.publish(CUT)
        connecting = asyncio.create_task(nodes.connect(Reader))
        await asyncio.sleep(A_WHILE_S)
        assert not connecting.done()
        nodes.board.publish(Faults())
        async with asyncio.timeout(5):
            transport, _reader = await connecting
        transport.abort()

    run(test())


def test_a_buffered_protocol_gets_pieces_that_fit_and_may_pause(nodes: Nodes) -> None:
    async def test() -> None:
        transport, reader = await nodes.connect(BufferedReader)
        transport.write(b"0123456789")
        async with asyncio.timeout(5):
            while reader.received != b"0123456789":
                before = reader.received
                await asyncio.sleep(0.01)
                assert len(reader.received) <= len(before) + 4
                transport.resume_reading()
        transport.abort()

    run(test())
