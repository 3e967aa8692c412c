"""The life of connections: limits, idle ones, a thousand of them, and a server that stops."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import socket
import weakref

import pytest

from penstock.limits import ACCEPT_BACKLOG
from penstock.server.dispatch import Dispatch
from penstock.server.quotas import ConnectionLimits
from penstock.server.server import Server
from penstock.server.state import Bounds, bounds_of
from penstock.world import World
from penstock.world.real import run
from penstock.world.sim import Simulation
from tests.server.serving import Client, Served, config, heartbeat, respond_now, serving
from tests.server.test_server_order import Gates, until
from tests.world.both_worlds import Play, play_simulated


def test_idle_connections_are_closed_and_others_are_not() -> None:
    simulation = Simulation(seed=3)
    node = simulation.node("n1")

    async def scenario() -> tuple[float, float, list[int], list[int], int]:
        gates = Gates()
        async with serving(node.world, gates.handle, Bounds(max_idle_s=600)) as served:
            idle, waiting, busy = (
                await served.connect(),
                await served.connect(),
                await served.connect(),
            )
            start = node.world.clock.monotonic()
            idle.send(heartbeat(1))
            waiting.send(heartbeat(1, "wait a"))
            while not idle.lost.is_set():
                busy.send(heartbeat(1))
                await asyncio.sleep(10)
            closed = node.world.clock.monotonic() - start
            await asyncio.sleep(300)
            gates.gate("a").set()
            order = await waiting.wait_responses(1)
            return start, closed, order, busy.order, served.server.counters.connections_idle_closed

    _, closed, order, busy, counted = simulation.run(node.run(scenario()))
    assert 600 <= closed <= 620
    assert order == [1]
    assert len(busy) >= 60
    assert counted == 1


def test_connections_are_limited(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> tuple[int, int]:
        async with serving(
            world, respond_now, Bounds(connections=ConnectionLimits(total=3))
        ) as served:
            clients = [await served.connect() for _ in range(3)]
            for client in clients:
                client.send(heartbeat(1))
                assert await client.wait_responses(1) == [1]
            for _ in range(2):
                refused = await connect_or_lost(served)
                assert refused is None or refused.order == []
            clients[0].transport.close()
            await until(lambda: served.server.counters.connections == 2)
            again = await served.connect()
            again.send(heartbeat(2))
            assert await again.wait_responses(1) == [2]
            return served.server._state.quotas.refused, served.server.counters.connections

    assert play(scenario) == (2, 3)
    assert caplog.text.count("refused a connection") == 1


async def connect_or_lost(served: Served) -> Client | None:
    """A refused connection ends, or cannot be made."""
    try:
        client = await served.connect()
    except ConnectionError:
        return None
    await client.wait_lost()
    return client


def test_a_thousand_connections(play: Play) -> None:
    async def scenario(world: World) -> tuple[int, int]:
        async with serving(world, respond_now) as served:
            clients = [await served.connect() for _ in range(1_000)]
            for number, client in enumerate(clients):
                client.send(heartbeat(number), heartbeat(number + 1))
            for number, client in enumerate(clients):
                assert await client.wait_responses(2) == [number, number + 1]
            most = served.server.counters.connections
            for client in clients:
                client.transport.close()
            await until(lambda: served.server.counters.connections == 0)
            return most, served.server.counters.requests

    assert play(scenario) == (1_000, 2_000)


def test_a_stopping_server_sends_pending_responses_and_takes_no_requests(play: Play) -> None:
    async def scenario(world: World) -> tuple[list[int], list[int], list[int]]:
        gates = Gates()
        async with serving(world, gates.handle) as served:
            client, idle = await served.connect(), await served.connect()
            client.send(heartbeat(1, "wait a"), heartbeat(2))
            await until(lambda: len(gates.seen) == 2)
            stopping = asyncio.ensure_future(served.server.stop(within_s=20))
            await idle.wait_lost()
            client.send(heartbeat(3))
            await asyncio.sleep(0.05)
            gates.gate("a").set()
            await stopping
            await client.wait_lost()
            with pytest.raises(ConnectionError):
                await served.connect()
            return gates.seen, client.order, gates.cancelled

    assert play(scenario) == ([1, 2], [1, 2], [])


def test_a_stopping_server_aborts_connections_that_do_not_end(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> list[int]:
        gates = Gates()
        async with serving(world, gates.handle) as served:
            client = await served.connect()
            client.send(heartbeat(1, "wait a"))
            await until(lambda: gates.seen)
            await served.server.stop(within_s=0.05)
            assert gates.cancelled == [1]
            await client.wait_lost()
            return client.order

    assert play(scenario) == []
    assert "aborted 1 connections" in caplog.text


def test_a_server_without_connections_stops_immediately(play: Play) -> None:
    async def scenario(world: World) -> float:
        async with serving(world, respond_now) as served:
            start = world.clock.monotonic()
            await served.server.stop()
            return world.clock.monotonic() - start

    assert play(scenario) < 1


def test_the_error_for_a_port_in_use_names_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world, respond_now) as served:
            port = served.server.ports["PLAINTEXT"]
            second = Server(
                world,
                config(f"CONTROLLER://localhost:0,PLAINTEXT://localhost:{port}"),
                Dispatch(None, {}, lambda _: respond_now),
            )
            with pytest.raises(
                OSError, match=f"cannot listen on PLAINTEXT://localhost:{port}"
            ) as caught:
                await second.start()
            assert caught.value.errno == errno.EADDRINUSE
            with pytest.raises(ConnectionError):
                await world.network.connect(Client, "localhost", second.ports["CONTROLLER"])

    play(scenario)


def test_bounds_come_from_the_config() -> None:
    bounds = bounds_of(config())
    assert bounds.max_request_bytes == 104_857_600
    assert bounds.max_idle_s == 600
    assert bounds.connections.total == 2**31 - 1


def test_socket_settings_apply_only_if_they_are_set() -> None:
    assert (bounds_of(config()).send_buffer_bytes, bounds_of(config()).receive_buffer_bytes) == (
        None,
        None,
    )
    assert bounds_of(config()).accept_backlog == ACCEPT_BACKLOG
    given = bounds_of(
        config(
            more="socket.send.buffer.bytes=-1\nsocket.receive.buffer.bytes=5000\nsocket.listen.backlog.size=7\n"
        )
    )
    assert (given.send_buffer_bytes, given.receive_buffer_bytes, given.accept_backlog) == (
        None,
        5_000,
        7,
    )


def test_socket_buffers_have_the_configured_sizes() -> None:
    async def scenario(world: World) -> tuple[int, int]:
        async with serving(
            world, respond_now, Bounds(send_buffer_bytes=50_000, receive_buffer_bytes=70_000)
        ) as served:
            client = await served.connect()
            client.send(heartbeat(1))
            await client.wait_responses(1)
            (connection,) = served.server._state.connections
            own = connection._transport.get_extra_info("socket")
            return tuple(
                own.getsockopt(socket.SOL_SOCKET, option)
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
            )

    assert run(scenario) == (100_000, 140_000)  # Linux doubles them for its own use


@pytest.mark.parametrize(
    ("listeners", "advertised", "logged"),
    [
        ("PLAINTEXT://:0", "", True),
        ("PLAINTEXT://[::]:0", "", True),
        ("PLAINTEXT://localhost:0", "", False),
        ("PLAINTEXT://:0", "advertised.listeners=PLAINTEXT://broker.example:9092\n", False),
    ],
)
def test_a_wildcard_listener_without_advertised_listeners_is_logged(
    listeners: str, advertised: str, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        settings = config(f"{listeners},CONTROLLER://localhost:0", advertised)
        server = Server(world, settings, Dispatch(None, {}, lambda _: respond_now))
        await server.start()
        await server.accept_clients()
        await server.stop()

    with caplog.at_level(logging.INFO, "penstock.server"):
        play_simulated(scenario)
    lines = [line for line in caplog.messages if "advertised.listeners" in line]
    assert len(lines) == logged
    assert all("port forward" in line and listeners in line for line in lines)


def test_closed_connections_are_freed_without_the_garbage_collector() -> None:
    """Thousands of clients connect and leave between two full collections."""

    async def scenario(world: World) -> tuple[int, int]:
        async with serving(world, respond_now) as served:
            clients = [await served.connect() for _ in range(4)]
            for number, client in enumerate(clients):
                client.send(heartbeat(number), heartbeat(number)[: 20 if number % 2 else 0])
                await client.wait_responses(1)
            gc.collect()
            gc.disable()
            try:
                connections = [weakref.ref(each) for each in served.server._state.connections]
                next(iter(served.server._state.connections)).evict("a test")
                for client in clients[1:]:
                    client.transport.close()
                await until(lambda: served.server.counters.connections == 0)
                await asyncio.sleep(0.01)
                return len(connections), sum(each() is not None for each in connections)
            finally:
                gc.enable()

    assert run(scenario) == (4, 0)
