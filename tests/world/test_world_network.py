"""Network: real sockets (on uvloop) and simulated ones behave alike."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.world import World
from tests.world.both_worlds import Play

MEGABYTE = 1024 * 1024


class Recorder(asyncio.Protocol):
    """Records its callbacks; connection_lost sets `ended`."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.events: list[str] = []
        self.ended = asyncio.Event()
        self.received = asyncio.Event()
        self.error: Exception | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        self.data += data
        self.received.set()

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.events.append("lost")
        self.ended.set()

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Echo(Recorder):
    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Buffered(asyncio.BufferedProtocol):
    """Receives data in buffers of three bytes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.buffer = bytearray(3)
        self.ended = asyncio.Event()

    def get_buffer(self, sizehint: int) -> bytearray:
        assert sizehint >= -1
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        assert exc is None
        self.ended.set()


async def pair(world: World, server: Any, client: Any) -> Any:
    """Connect the client protocol to the server protocol and return the listener."""
    listener = await world.network.listen(lambda: server, "localhost", 0)
    await world.network.connect(lambda: client, "localhost", listener.port)
    return listener


def test_bytes_arrive_in_order(play: Play) -> None:
    async def scenario(world: World) -> bytes:
        client = Recorder()
        await pair(world, Echo(), client)
        for number in range(200):
            client.transport.write(b"%05d" % number)
        client.transport.writelines([b"the ", bytearray(b"e"), memoryview(b"nd")])
        while len(client.data) < 1007:
            client.received.clear()
            await client.received.wait()
        return bytes(client.data)

    assert play(scenario) == b"".join(b"%05d" % number for number in range(200)) + b"the end"


def test_close_delivers_written_data_and_then_ends_both_sides(play: Play) -> None:
    async def scenario(world: World) -> None:
        server, client = Recorder(), Recorder()
        await pair(world, server, client)
        client.transport.write(b"x" * MEGABYTE)
        client.transport.close()
        assert client.transport.is_closing()
        client.transport.write(b"too late")
        await server.ended.wait()
        await client.ended.wait()
        assert server.data == b"x" * MEGABYTE
        assert server.events == ["made", "eof", "lost"]
        assert client.events[-1] == "lost"
        assert client.error is None
        assert server.error is None

    play(scenario)


def test_an_aborted_connection_is_reset(play: Play) -> None:
    async def scenario(world: World) -> None:
        server, client = Recorder(), Recorder()
        await pair(world, server, client)
        client.transport.write(b"hello")
        await server.received.wait()
        server.transport.pause_reading()
        client.transport.abort()
        await client.ended.wait()
        assert client.error is None
        server.transport.resume_reading()
        await server.ended.wait()

    play(scenario)


def test_half_close(play: Play) -> None:
    class Replying(Recorder):
        def eof_received(self) -> bool:
            self.transport.write(b"received: " + bytes(self.data))
            self.transport.close()
            return True

    async def scenario(world: World) -> bytes:
        client = Recorder()
        await pair(world, Replying(), client)
        assert client.transport.can_write_eof()
        client.transport.write(b"hello")
        client.transport.write_eof()
        await client.ended.wait()
        return bytes(client.data)

    assert play(scenario) == b"received: hello"


def test_buffered_protocols_are_filled(play: Play) -> None:
    async def scenario(world: World) -> bytes:
        server, client = Buffered(), Recorder()
        await pair(world, server, client)
        client.transport.write(b"ten bytes!")
        client.transport.close()
        await server.ended.wait()
        return bytes(server.data)

    assert play(scenario) == b"ten bytes!"


def test_a_port_without_a_listener_refuses_connections(play: Play) -> None:
    async def scenario(world: World) -> None:
        listener = await world.network.listen(Recorder, "localhost", 0)
        with pytest.raises(OSError, match=r"in use"):
            await world.network.listen(Recorder, "localhost", listener.port)
        listener.close()
        await listener.wait_closed()
        with pytest.raises(OSError, match=r"refused|Connect call failed|Multiple exceptions"):
            await world.network.connect(Recorder, "localhost", listener.port)

    play(scenario)


def test_a_closed_listener_keeps_its_connections_open(play: Play) -> None:
    async def scenario(world: World) -> bytes:
        client = Recorder()
        listener = await pair(world, Echo(), client)
        client.transport.write(b"a")
        await client.received.wait()
        listener.close()
        await listener.wait_closed()
        client.received.clear()
        client.transport.write(b"b")
        await client.received.wait()
        return bytes(client.data)

    assert play(scenario) == b"ab"


def test_a_paused_reader_pauses_the_writer(play: Play) -> None:
    async def scenario(world: World) -> None:
        server, client = Recorder(), Recorder()
        await pair(world, server, client)
        client.transport.write(b"x")
        await server.received.wait()
        server.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=1000, low=10)
        size = 64 * MEGABYTE if world.disk.__class__.__name__ == "RealDisk" else MEGABYTE
        client.transport.write(b"x" * size)
        assert client.events == ["made", "pause"]
        assert client.transport.get_write_buffer_size() > 1000
        await asyncio.sleep(0.01)
        assert len(server.data) <= MEGABYTE
        server.transport.resume_reading()
        client.transport.close()
        await server.ended.wait()
        assert len(server.data) == size + 1
        assert client.events in (["made", "pause", "resume", "lost"], ["made", "pause", "lost"])

    play(scenario)


def test_both_ends_know_their_addresses(play: Play) -> None:
    async def scenario(world: World) -> None:
        server, client = Recorder(), Recorder()
        listener = await pair(world, server, client)
        client.transport.write(b"x")
        await server.received.wait()
        assert client.transport.get_extra_info("peername")[1] == listener.port
        assert client.transport.get_extra_info("sockname") == server.transport.get_extra_info(
            "peername"
        )
        assert client.transport.get_extra_info("nonsense", 7) == 7

    play(scenario)


def test_asyncio_streams_work(play: Play) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    async def scenario(world: World) -> list[bytes]:
        loop = asyncio.get_running_loop()
        listener = await world.network.listen(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), serve), "localhost", 0
        )
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await world.network.connect(lambda: protocol, "localhost", listener.port)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        writer.write(b"one\ntwo\n")
        await writer.drain()
        writer.write_eof()
        return [await reader.readline(), await reader.readline(), await reader.read()]

    assert play(scenario) == [b"ONE\n", b"TWO\n", b""]
