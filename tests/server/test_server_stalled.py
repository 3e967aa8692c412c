"""Peers that send parts of requests, or do not read their responses, do not delay others."""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from penstock.limits import (
    FRAME_GRACE_S,
    MIN_FRAME_BYTES_PER_S,
    REQUEST_WINDOW_S,
    RESUMED_A_TURN,
    SWEEP_INTERVAL_S,
)
from penstock.protocol.messages.fetch import FetchResponse
from penstock.server.dispatch import Handler
from penstock.server.memory import Memory
from penstock.server.quotas import ConnectionLimits
from penstock.server.state import Bounds, bounds_of
from penstock.world import World
from penstock.world.sim import Simulation
from tests.server.serving import FETCH, HEARTBEAT, config, heartbeat, respond_now, serving
from tests.server.test_server_backpressure import fetch
from tests.server.test_server_memory import BOUNDS, MEGABYTE, REQUEST, large, memory
from tests.server.test_server_order import Gates, until
from tests.world.both_worlds import Play

T = TypeVar("T")


def run_simulated(scenario: Callable[[World], Coroutine[Any, Any, T]]) -> T:
    simulation = Simulation(seed=3)
    node = simulation.node("n1")
    return simulation.run(node.run(scenario(node.world)))


def test_half_sent_requests_do_not_delay_other_clients(caplog: pytest.LogCaptureFixture) -> None:
    """32 parts of requests at a bound of 1 MB delayed another client by 54 s."""

    async def scenario(world: World) -> tuple[float, float, int]:
        bounds = Bounds(max_node_inflight_bytes=MEGABYTE)
        async with serving(world, respond_now, bounds) as served:
            small_one, large_one = await served.connect(), await served.connect()
            halves = [await served.connect() for _ in range(32)]
            for client in halves:
                client.send(struct.pack(">i", 100_000) + bytes(33_000))
            await until(lambda: memory(served).short)
            start = world.clock.monotonic()
            small_one.send(heartbeat(1))
            await small_one.wait_responses(1)
            small_s = world.clock.monotonic() - start
            large_one.send(large(2))
            await large_one.wait_responses(1)
            large_s = world.clock.monotonic() - start
            await asyncio.sleep(3)
            return small_s, large_s, sum(client.lost.is_set() for client in halves)

    small_s, large_s, closed = run_simulated(scenario)
    assert small_s < 0.1
    assert large_s < 2
    assert 4 <= closed <= 31, "as many as needed, and no more"
    assert "its peer is slow (0 bytes/s)" in caplog.text


def test_a_thousand_stalled_connections_are_closed_within_seconds() -> None:
    async def scenario(world: World) -> tuple[float, int, int]:
        bounds = Bounds(max_node_inflight_bytes=32 * MEGABYTE)
        async with serving(world, respond_now, bounds) as served:
            honest = await served.connect()
            halves = [await served.connect() for _ in range(1_000)]
            for client in halves:
                client.send(struct.pack(">i", 100_000) + bytes(40_000))
            await until(lambda: memory(served).short)
            start = world.clock.monotonic()
            honest.send(large(1))
            await honest.wait_responses(1)
            return (
                world.clock.monotonic() - start,
                memory(served).evicted,
                sum(client.lost.is_set() for client in halves),
            )

    waited, evicted, _lost = run_simulated(scenario)
    assert waited < 2.5
    assert evicted >= 100


def test_peers_that_make_progress_are_not_closed_while_memory_is_short() -> None:
    async def scenario(world: World) -> list[int]:
        async with serving(world, respond_now, BOUNDS) as served:
            slow, stalled = (
                [await served.connect() for _ in range(2)],
                [await served.connect() for _ in range(4)],
            )
            for client in slow:
                client.send(large(1)[:1000])
            for client in stalled:
                client.send(large(1)[: REQUEST - 1])
            for part in range(60):
                for client in slow:
                    client.send(large(1)[1000 * (part + 1) : 1000 * (part + 2)])
                await asyncio.sleep(REQUEST_WINDOW_S / 20)
            assert memory(served).evicted
            for client in slow:
                client.send(large(1)[61_000:])
            return [(await client.wait_responses(1))[0] for client in slow]

    assert run_simulated(scenario) == [1, 1]


def test_peers_that_send_single_bytes_do_not_hold_memory_for_long() -> None:
    """They kept their connections, and the largest others were closed."""

    async def scenario(world: World) -> float:
        async with serving(world, respond_now, BOUNDS) as served:
            honest, hostile = await served.connect(), [await served.connect() for _ in range(4)]
            for client in hostile:
                client.send(large(1)[: REQUEST - 1_000])
            await until(lambda: memory(served).short)

            async def drip() -> None:
                while True:
                    await asyncio.sleep(REQUEST_WINDOW_S / 20)
                    for client in hostile:
                        client.send(b"\0")

            dripping = asyncio.ensure_future(drip())
            start = world.clock.monotonic()
            honest.send(large(7))
            assert await honest.wait_responses(1) == [7]
            dripping.cancel()
            return world.clock.monotonic() - start

    assert run_simulated(scenario) <= 3 * REQUEST_WINDOW_S


def test_a_started_request_must_arrive_at_a_minimum_rate(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> tuple[float, list[int], bool]:
        async with serving(world, respond_now, BOUNDS) as served:
            stopped, dripping, slow, idle = [await served.connect() for _ in range(4)]
            start = world.clock.monotonic()
            stopped.send(large(1)[:100])
            rate = 2 * MIN_FRAME_BYTES_PER_S
            for second in range(REQUEST // rate + 1):
                slow.send(large(5)[second * rate : (second + 1) * rate])
                dripping.send(large(1)[second : second + 1])
                if stopped.lost.is_set() and not closed_after:
                    closed_after.append(world.clock.monotonic() - start)
                await asyncio.sleep(1)
            assert dripping.lost.is_set()
            assert served.server.counters.connections_stalled == 2
            return closed_after[0], await slow.wait_responses(1), idle.lost.is_set()

    closed_after: list[float] = []
    closed, order, idle_closed = run_simulated(scenario)
    assert FRAME_GRACE_S <= closed <= FRAME_GRACE_S + 2 * SWEEP_INTERVAL_S
    assert order == [5]
    assert not idle_closed
    assert caplog.text.count("bytes of a request in") == 1, "a line for some seconds suffices"


def test_the_time_in_which_a_connection_is_not_read_does_not_count() -> None:
    async def scenario(world: World) -> bool:
        gates = Gates()
        bounds = Bounds(max_inflight_requests=1)
        async with serving(world, gates.handle, bounds) as served:
            client = await served.connect()
            client.send(heartbeat(1, "wait a"), heartbeat(2)[:-1])
            await until(lambda: gates.seen)
            await asyncio.sleep(3 * FRAME_GRACE_S)
            gates.gate("a").set()
            client.send(heartbeat(2)[-1:])
            return await client.wait_responses(2) == [1, 2]

    assert run_simulated(scenario)


def test_the_controllers_listener_has_a_memory_of_its_own(play: Play) -> None:
    async def scenario(world: World) -> tuple[list[int], bool]:
        bounds = replace(
            BOUNDS, connections=ConnectionLimits(reserved_listeners=frozenset({"CONTROLLER"}))
        )
        async with serving(world, respond_now, bounds) as served:
            halves = [await served.connect() for _ in range(4)]
            broker = await served.connect("CONTROLLER")
            for client in halves:
                client.send(large(1)[: REQUEST - 1])
            await until(lambda: memory(served).short)
            broker.send(large(7))
            return await broker.wait_responses(1), memory(served).short

    order, was_short = play(scenario)
    assert order == [7]
    assert was_short, "it was served although clients hold all of their memory"


def test_reserved_listeners_are_those_of_controllers_and_between_brokers() -> None:
    shared = config()
    assert bounds_of(shared).connections.reserved_listeners == {"CONTROLLER"}
    separate = config(
        "PLAINTEXT://localhost:0,BETWEEN://localhost:0,CONTROLLER://localhost:0",
        "listener.security.protocol.map="
        "PLAINTEXT:PLAINTEXT,BETWEEN:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "inter.broker.listener.name=BETWEEN\n",
    )
    assert bounds_of(separate).connections.reserved_listeners == {"CONTROLLER", "BETWEEN"}


def test_responses_that_peers_do_not_read_count_and_stalled_readers_are_closed() -> None:
    """Each transport held a whole response, and none of them counted."""
    names = tuple(FetchResponse.Response(topic="t" * 200) for _ in range(5_000))

    async def scenario(world: World) -> tuple[int, list[int]]:
        handlers: dict[int, Handler] = {
            FETCH: lambda *_: FetchResponse(responses=names),
            HEARTBEAT: respond_now,
        }
        async with serving(world, handlers, BOUNDS) as served:
            deaf, honest = [await served.connect() for _ in range(8)], await served.connect()
            for client in deaf:
                client.transport.pause_reading()
                client.send(fetch(1))
            await until(lambda: memory(served).short)
            honest.send(large(7))
            order = await honest.wait_responses(1)
            await until(lambda: not memory(served).short)
            return memory(served).evicted, order

    evicted, order = run_simulated(scenario)
    assert order == [7]
    assert evicted >= 1


class FakeMember:
    def __init__(self) -> None:
        self.memory_held = 0
        self.resumed = 0

    def trim(self) -> None:
        """It has nothing to release."""

    def set_reading(self) -> None:
        self.resumed += 1

    def rate(self, _now: float) -> float:
        return math.inf

    def missing_bytes(self) -> int:
        return 1_000

    def evict(self, _reason: str) -> None:
        raise AssertionError("it is not slow")


def test_connections_that_waited_for_memory_are_resumed_a_few_at_a_time() -> None:
    async def scenario(_world: World) -> list[int]:
        shared = Memory(1_000)
        members, last = [FakeMember() for _ in range(100)], FakeMember()
        for member in members:
            shared.hold(member, 1)
        shared.hold(last, 1_000)
        assert shared.may_read(last, partial=True, full=True), "the first may grow"
        for member in members:
            assert not shared.may_read(member, partial=True, full=True)
            member.resumed = 0
        resumed = []
        shared.hold(last, 0)
        for _ in range(12):
            resumed.append(sum(member.resumed for member in members))
            await asyncio.sleep(0)
        return resumed

    resumed = run_simulated(scenario)
    assert resumed[:2] == [RESUMED_A_TURN, 2 * RESUMED_A_TURN]
    assert resumed[-1] == 100
