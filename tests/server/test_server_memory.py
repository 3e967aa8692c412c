"""The memory of all connections together is bounded, and no connection waits for it forever."""

from __future__ import annotations

import struct
from typing import Any

from penstock.handlers.context import RequestContext
from penstock.limits import DECODED_BYTES_PER_BYTE, READ_BYTES, SHORT_READ_BYTES
from penstock.node.delayed import DelayedResponse
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.server.memory import Memory
from penstock.server.state import Bounds
from penstock.world import World
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


def memory(served: Served) -> Memory:
    return served.server._state.memory


def used(served: Served) -> int:
    return memory(served).used


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


def test_small_requests_are_served_while_memory_is_short_and_large_ones_wait(play: Play) -> None:
    async def scenario(world: World) -> tuple[int, bool]:
        async with serving(world, respond_now, BOUNDS) as served:
            halves = [await served.connect() for _ in range(4)]
            other, large_one = await served.connect(), await served.connect()
            for client in halves:
                client.send(large(1)[: REQUEST - 1])
            await until(lambda: memory(served).short)
            large_one.send(large(2))
            for number in range(5):
                other.send(heartbeat(number))
                assert await other.wait_responses(number + 1) == list(range(number + 1))
            most, was_short = used(served), memory(served).short
            for client in halves:
                client.send(large(1)[REQUEST - 1 :])
            for client in halves:
                assert await client.wait_responses(1) == [1]
            assert await large_one.wait_responses(1) == [2]
            return most, was_short

    most, was_short = play(scenario)
    assert was_short
    assert most <= LIMIT + REQUEST + 6 * SHORT_READ_BYTES


def test_requests_whose_handlers_wait_do_not_block_others(play: Play) -> None:
    """An acks=all write waits for followers, whose fetches must be read meanwhile."""

    async def scenario(world: World) -> tuple[list[int], list[int]]:
        gates = Gates()
        async with serving(world, gates.handle, Bounds(max_node_inflight_bytes=20_000)) as served:
            producer, follower = await served.connect(), await served.connect()
            producer.send(*(heartbeat(number, "wait " + "a" * 5_000) for number in range(5)))
            await until(lambda: memory(served).short)
            follower.send(heartbeat(100))
            fetched = await follower.wait_responses(1)
            gates.gate("a" * 5_000).set()
            return fetched, await producer.wait_responses(5)

    assert play(scenario) == ([100], list(range(5)))


def test_decoded_requests_count_until_their_response_is_sent(play: Play) -> None:
    """34 MB of objects for a Fetch of 3 MB were not counted, in any number of requests."""

    async def scenario(world: World) -> tuple[int, int]:
        gates = Gates()
        async with serving(world, gates.handle) as served:
            client = await served.connect()
            client.send(*(heartbeat(number, "wait " + "a" * 30_000) for number in range(10)))
            await until(lambda: len(gates.seen) == 10)
            waiting = used(served)
            gates.gate("a" * 30_000).set()
            await client.wait_responses(10)
            await until(lambda: used(served) == 0)
            return waiting, used(served)

    waiting, left = play(scenario)
    assert waiting >= 10 * 30_000 * DECODED_BYTES_PER_BYTE
    assert left == 0


def test_a_connection_takes_no_more_requests_that_wait_while_memory_is_short(play: Play) -> None:
    async def scenario(world: World) -> tuple[int, list[int]]:
        gates = Gates()
        async with serving(world, gates.handle, Bounds(max_node_inflight_bytes=500_000)) as served:
            client = await served.connect()
            client.send(*(heartbeat(number, "wait " + "a" * 10_000) for number in range(1_000)))
            await until(lambda: memory(served).short)
            other = await served.connect()
            other.send(heartbeat(5_000))
            await other.wait_responses(1)
            taken = len(gates.seen) - 1
            gates.gate("a" * 10_000).set()
            return taken, await client.wait_responses(1_000)

    taken, order = play(scenario)
    assert taken <= 3 * READ_BYTES // 10_000, "what the first reads brought"
    assert order == list(range(1_000))


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
            return delayed if request.member_id.startswith("delayed") else HeartbeatResponse()

        async with serving(world, handle, BOUNDS) as served:
            client = await served.connect()
            client.send(heartbeat(1, "delayed" + "x" * 5_000), heartbeat(2))
            await until(lambda: used(served) > 0)
            waiting = used(served)
            delayed.complete(HeartbeatResponse())
            assert await client.wait_responses(2) == [1, 2]
            return waiting, used(served)

    waiting, left = play(scenario)
    assert waiting > 0
    assert left == 0
