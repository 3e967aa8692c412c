"""The memory of all connections together is bounded, and no connection waits for it for ever."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from penstock.handlers.context import RequestContext
from penstock.limits import MEMORY_SHORT_S, SWEEP_INTERVAL_S
from penstock.node.delayed import DelayedResponse
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.server.state import Bounds
from penstock.world import World
from penstock.world.sim import Simulation
from tests.server.serving import Served, heartbeat, raw_request, respond_now, serving
from tests.server.test_server_order import Gates, until
from tests.world.both_worlds import Play

MEGABYTE = 1024 * 1024
LIMIT = 4 * MEGABYTE
REQUEST = 2 * MEGABYTE
BOUNDS = Bounds(max_node_inflight_bytes=LIMIT, max_request_bytes=3 * MEGABYTE)


def large(correlation: int) -> bytes:
    """Return a heartbeat with many bytes after it, which are ignored."""
    small = heartbeat(correlation)
    return struct.pack(">i", REQUEST) + small[4:] + bytes(REQUEST - len(small) + 4)


def used(served: Served) -> int:
    return served.server._state.memory.used


def test_partial_requests_stay_below_the_bound_and_all_are_answered(
    play: Play,
) -> None:
    async def scenario(world: World) -> tuple[int, int, int]:
        most = 0

        def look(
            _node: Any, _request: HeartbeatRequest, _context: RequestContext
        ) -> HeartbeatResponse:
            nonlocal most
            most = max(most, used(served))
            return HeartbeatResponse()

        async with serving(world, look, BOUNDS) as served:
            clients = [await served.connect() for _ in range(30)]
            for number, client in enumerate(clients):
                client.send(large(number)[: REQUEST // 2])
            await until(lambda: served.server._state.memory.short)
            for number, client in enumerate(clients):
                client.send(large(number)[REQUEST // 2 :])
            for number, client in enumerate(clients):
                assert await client.wait_responses(1) == [number]
            for number, client in enumerate(clients):  # once more, after memory was short
                client.send(heartbeat(number))
                assert await client.wait_responses(2) == [number, number]
            return most, served.server._state.memory.times_short, used(served)

    most, times_short, left = play(scenario)
    assert (
        most <= LIMIT + 2 * REQUEST
    )  # the request that reached the bound, and the one that was read then
    assert times_short >= 1
    assert left < LIMIT // 4 * 3


def test_connections_without_a_partial_request_are_not_read_while_memory_is_short(
    play: Play,
) -> None:
    async def scenario(world: World) -> tuple[list[int], list[int]]:
        gates = Gates()
        async with serving(world, gates.handle, BOUNDS) as served:
            halves, other = [await served.connect() for _ in range(4)], await served.connect()
            for client in halves:
                client.send(large(1)[: REQUEST - 1])
            await until(lambda: served.server._state.memory.short)
            other.send(heartbeat(100))
            await asyncio.sleep(0.05)
            seen = list(gates.seen)
            for client in halves:
                client.send(large(1)[REQUEST - 1 :])
            answered = [await client.wait_responses(1) for client in halves]
            assert await other.wait_responses(1) == [100]
            return seen, [correlation for order in answered for correlation in order]

    seen, answered = play(scenario)
    assert 100 not in seen
    assert answered == [1] * 4


def test_requests_whose_handlers_wait_do_not_count(play: Play) -> None:
    """An acks=all write waits for followers, whose fetches must be read meanwhile."""

    async def scenario(world: World) -> tuple[list[int], list[int]]:
        gates = Gates()
        async with serving(world, gates.handle, Bounds(max_node_inflight_bytes=20_000)) as served:
            producer, follower = await served.connect(), await served.connect()
            producer.send(*(heartbeat(number, "wait " + "a" * 5_000) for number in range(5)))
            await until(lambda: len(gates.seen) == 5)
            follower.send(heartbeat(100))
            fetched = await follower.wait_responses(1)
            gates.gate("a" * 5_000).set()
            return fetched, await producer.wait_responses(5)

    assert play(scenario) == ([100], list(range(5)))


def test_peers_that_never_complete_a_request_do_not_block_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    simulation = Simulation(seed=3)
    node = simulation.node("n1")

    async def scenario() -> tuple[list[int], float, int]:
        async with serving(node.world, respond_now, BOUNDS) as served:
            silent, honest = [await served.connect() for _ in range(4)], await served.connect()
            for client in silent:
                client.send(large(1)[:-1])
            await until(lambda: served.server._state.memory.short)
            start = node.world.clock.monotonic()
            honest.send(heartbeat(7))
            order = await honest.wait_responses(1)
            return (
                order,
                node.world.clock.monotonic() - start,
                sum(client.lost.is_set() for client in silent),
            )

    order, waited, closed = simulation.run(node.run(scenario()))
    assert order == [7]
    assert waited <= MEMORY_SHORT_S + 4 * SWEEP_INTERVAL_S  # at worst all four are closed first
    assert closed >= 1
    assert "more than any other connection" in caplog.text


def test_a_lost_connection_releases_its_memory(play: Play) -> None:
    async def scenario(world: World) -> tuple[int, int]:
        gates = Gates()
        async with serving(world, gates.handle, BOUNDS) as served:
            half, waiting = await served.connect(), await served.connect()
            half.send(large(1)[:-1])
            waiting.send(heartbeat(1, "wait a"), raw_request(12, 4, 2)[:-1])
            await until(lambda: used(served) > REQUEST)
            before = used(served)
            half.transport.abort()
            waiting.transport.abort()
            await until(lambda: served.server.counters.connections == 0)
            return before, used(served)

    before, after = play(scenario)
    assert before > REQUEST
    assert after == 0


def test_responses_that_waited_for_an_earlier_one_hold_no_memory_once_they_are_sent(
    play: Play,
) -> None:
    async def scenario(world: World) -> tuple[int, int]:
        delayed: DelayedResponse[HeartbeatResponse] = DelayedResponse()

        def handle(
            _node: Any, request: HeartbeatRequest, _context: RequestContext
        ) -> HeartbeatResponse | DelayedResponse[HeartbeatResponse]:
            return delayed if request.member_id == "delayed" else HeartbeatResponse()

        async with serving(world, handle, BOUNDS) as served:
            client = await served.connect()
            client.send(heartbeat(1, "delayed"), heartbeat(2))
            await until(lambda: used(served) > 0)
            waiting = used(served)
            delayed.complete(HeartbeatResponse())
            assert await client.wait_responses(2) == [1, 2]
            return waiting, used(served)

    waiting, left = play(scenario)
    assert waiting > 0
    assert left == 0
