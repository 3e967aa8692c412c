"""Requests are handled and answered in their order, however long each takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, cast

import pytest

from penstock.handlers.context import Exclusive, RequestContext
from penstock.limits import READ_BYTES, READ_BYTES_A_TURN, TURN_S
from penstock.protocol.framing import frame_request
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.server.state import Bounds
from penstock.world import Clock, World
from penstock.world.real import run
from tests.server.serving import PRODUCE, Client, heartbeat, respond_now, serving
from tests.world.both_worlds import Play


class Gates:
    """A handler that does what the request says: "" responds now, "none" does not respond, "wait X"
    responds when the gate X opens."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.contexts: list[RequestContext] = []
        self.cancelled: list[int] = []
        self._gates: dict[str, asyncio.Event] = {}

    def gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    def handle(
        self, _node: Any, request: HeartbeatRequest, context: RequestContext
    ) -> HeartbeatResponse | Awaitable[HeartbeatResponse | None] | None:
        self.seen.append(context.correlation_id)
        self.contexts.append(context)
        word, _, name = request.member_id.partition(" ")
        if word in ("wait", "quiet"):
            return self._wait(name, context.correlation_id, response=word == "wait")
        return None if word == "none" else HeartbeatResponse()

    async def _wait(
        self, name: str, correlation: int, *, response: bool
    ) -> HeartbeatResponse | None:
        try:
            await self.gate(name).wait()
        except asyncio.CancelledError:
            self.cancelled.append(correlation)
            raise
        return HeartbeatResponse() if response else None


async def until(condition: Any, client: Client | None = None) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)
            assert client is None or not client.lost.is_set()


def test_handlers_overlap_and_responses_keep_their_order(play: Play) -> None:
    async def scenario(world: World) -> tuple[list[int], list[int], list[int]]:
        gates = Gates()
        async with serving(world, gates.handle) as served:
            client = await served.connect()
            kinds = ["", "wait a", "", "wait b", "none", "quiet b", "", "wait a", ""]
            client.send(*(heartbeat(number, kind) for number, kind in enumerate(kinds)))
            await until(lambda: len(gates.seen) == len(kinds))
            gates.gate("b").set()
            client.send(heartbeat(9))
            await until(lambda: len(gates.seen) == 10)
            before = await client.wait_responses(1)
            gates.gate("a").set()
            return gates.seen, list(before), await client.wait_responses(8)

    seen, before, after = play(scenario)
    assert seen == list(range(10))
    assert before == [0]
    assert after == [0, 1, 2, 3, 6, 7, 8, 9]


def test_many_pipelined_requests(play: Play) -> None:
    count = 2_000

    async def scenario(world: World) -> list[int]:
        async with serving(world, respond_now) as served:
            client = await served.connect()
            client.send(*(heartbeat(number) for number in range(count)))
            return await client.wait_responses(count)

    assert play(scenario) == list(range(count))


class WorkClock:
    """The clock of a world in which handlers take time."""

    def __init__(self, clock: Clock) -> None:
        self.now_ms = clock.now_ms
        self._monotonic = clock.monotonic
        self.worked_s = 0.0

    def monotonic(self) -> float:
        return self._monotonic() + self.worked_s


@pytest.mark.parametrize(("request_s", "most"), [(TURN_S / 10, 10), (TURN_S * 5, 1)])
def test_a_turn_of_a_pipelining_client_ends_with_its_time(
    play: Play, request_s: float, most: int
) -> None:
    turns = [0]

    async def scenario(world: World) -> list[int]:
        clock = WorkClock(world.clock)

        def work(*_: Any) -> HeartbeatResponse:
            if turns[-1] == 0:
                asyncio.get_running_loop().call_soon(turns.append, 0)
            turns[-1] += 1
            clock.worked_s += request_s
            return HeartbeatResponse()

        async with serving(replace(world, clock=clock), work) as served:
            client = await served.connect()
            client.send(*(heartbeat(number) for number in range(200)))
            return await client.wait_responses(200)

    assert play(scenario) == list(range(200))
    assert sum(turns) == 200
    assert max(turns) <= most


def test_no_request_is_taken_before_an_exclusive_response(play: Play) -> None:
    async def scenario(world: World) -> tuple[list[int], list[int], list[int]]:
        gates = Gates()

        def handle(node: Any, request: HeartbeatRequest, context: RequestContext) -> Any:
            response: Any = gates.handle(node, request, context)
            return Exclusive(response) if request.member_id == "wait exclusive" else response

        async with serving(world, handle) as served:
            client, other = await served.connect(), await served.connect()
            client.send(heartbeat(0, "wait a"), heartbeat(1, "wait exclusive"))
            client.send(*(heartbeat(number) for number in range(2, 20)))
            await until(lambda: len(gates.seen) == 2)
            gates.gate("a").set()
            assert await client.wait_responses(1) == [0]
            other.send(heartbeat(100))
            await other.wait_responses(1)
            before = list(gates.seen)
            gates.gate("exclusive").set()
            return before, await client.wait_responses(20), other.order

    before, order, other = play(scenario)
    assert before == [0, 1, 100]
    assert order == list(range(20))
    assert other == [100]


def test_frames_split_at_every_byte(play: Play) -> None:
    data = heartbeat(1, "x" * 9) + heartbeat(2) + heartbeat(3, "y")

    async def scenario(world: World) -> bool:
        async with serving(world, respond_now) as served:
            for cut in range(1, len(data)):
                client = await served.connect()
                client.send(data[:cut])
                await asyncio.sleep(0)
                client.send(data[cut:])
                assert await client.wait_responses(3) == [1, 2, 3]
                client.transport.close()
            client = await served.connect()
            for position in range(len(data)):
                client.send(data[position : position + 1])
                await asyncio.sleep(0.001)
            return await client.wait_responses(3) == [1, 2, 3]

    assert play(scenario)


def test_the_buffer_is_valid_during_the_synchronous_part(play: Play) -> None:
    """Each handler sees its own bytes, with several requests in flight that are larger than one
    read."""
    sizes = [30_000, 10, 32_000, 1, 31_999] * 8

    def check(_node: Any, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        assert (
            request.member_id
            == chr(97 + context.correlation_id % 26) * sizes[context.correlation_id]
        )
        return HeartbeatResponse(throttle_time_ms=len(request.member_id))

    async def scenario(world: World) -> list[int]:
        async with serving(world, check) as served:
            client = await served.connect()
            client.send(
                *(
                    heartbeat(number, chr(97 + number % 26) * size)
                    for number, size in enumerate(sizes)
                )
            )
            return await client.wait_responses(len(sizes))

    assert play(scenario) == list(range(len(sizes)))


def test_record_batches_are_writable_views(play: Play) -> None:
    """Batches larger than one read, which pass through the connection's own buffer, and smaller
    ones."""
    topic = ProduceRequest.TopicData
    seen: list[bytes] = []

    def produce(_node: Any, request: ProduceRequest, _context: RequestContext) -> ProduceResponse:
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert not records.readonly
        records[0] = 0xAA
        seen.append(bytes(records))
        return ProduceResponse()

    def message(size: int) -> ProduceRequest:
        partition = topic.PartitionData(records=bytes(size))
        return ProduceRequest(topic_data=(topic(name="t", partition_data=(partition,)),))

    sizes = [100, 3 * READ_BYTES, 1_000, READ_BYTES, 7]

    async def scenario(world: World) -> list[int]:
        async with serving(world, {PRODUCE: produce}) as served:
            client = await served.connect()
            client.send(
                *(
                    b"".join(cast("list[bytes]", frame_request(message(size), 9, size, None)))
                    for size in sizes
                )
            )
            return await client.wait_responses(len(sizes))

    assert play(scenario) == sizes
    assert seen == [b"\xaa" + bytes(size - 1) for size in sizes]


def test_an_immediate_response_needs_no_task() -> None:
    made = []

    def count(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def scenario(world: World) -> list[int]:
        async with serving(world, respond_now) as served:
            client = await served.connect()
            asyncio.get_running_loop().set_task_factory(count)
            client.send(*(heartbeat(number) for number in range(100)))
            order = await client.wait_responses(100)
            asyncio.get_running_loop().set_task_factory(None)
            return order

    assert run(scenario) == list(range(100))
    assert made == []


def test_waiting_handlers_are_cancelled_with_their_connection(play: Play) -> None:
    async def scenario(world: World) -> list[int]:
        gates = Gates()
        async with serving(world, gates.handle) as served:
            client, other = await served.connect(), await served.connect()
            client.send(heartbeat(1, "wait a"), heartbeat(2, "wait b"))
            other.send(heartbeat(3, "wait a"))
            await until(lambda: len(gates.seen) == 3)
            client.transport.abort()
            await until(lambda: len(gates.cancelled) == 2)
            gates.gate("a").set()
            assert await other.wait_responses(1) == [3]
            return gates.cancelled

    assert play(scenario) == [1, 2]


def test_requests_in_flight_are_bounded(play: Play) -> None:
    async def scenario(world: World) -> tuple[int, list[int]]:
        gates = Gates()
        async with serving(world, gates.handle, Bounds(max_inflight_requests=5)) as served:
            client = await served.connect()
            client.send(*(heartbeat(number, "wait a") for number in range(50)))
            await until(lambda: len(gates.seen) >= 5)
            await asyncio.sleep(0.05)
            first = len(gates.seen)
            gates.gate("a").set()
            return first, await client.wait_responses(50)

    assert play(scenario) == (5, list(range(50)))


def test_bytes_in_flight_are_bounded(play: Play) -> None:
    async def scenario(world: World) -> tuple[int, list[int]]:
        gates = Gates()
        async with serving(world, gates.handle, Bounds(max_inflight_bytes=25_000)) as served:
            client = await served.connect()
            client.send(*(heartbeat(number, "wait " + "a" * 10_000) for number in range(20)))
            await until(lambda: len(gates.seen) >= 3)
            await asyncio.sleep(0.05)
            first = len(gates.seen)
            gates.gate("a" * 10_000).set()
            return first, await client.wait_responses(20)

    assert play(scenario) == (3, list(range(20)))


def test_the_context_has_listener_addresses_and_client(play: Play) -> None:
    async def scenario(world: World) -> tuple[RequestContext, dict[str, int], Any]:
        gates = Gates()
        async with serving(world, gates.handle) as served:
            client = await served.connect("CONTROLLER")
            client.send(heartbeat(77, version=3))
            await client.wait_responses(1)
            return (
                gates.contexts[0],
                served.server.ports,
                client.transport.get_extra_info("sockname"),
            )

    context, ports, name = play(scenario)
    assert (context.api_key, context.version, context.correlation_id, context.client_id) == (
        12,
        3,
        77,
        "test",
    )
    assert (context.listener_name, context.local_port) == ("CONTROLLER", ports["CONTROLLER"])
    assert context.peer == f"{name[0]}:{name[1]}"
    assert context.received > 0


def test_reading_one_connection_ends_with_its_turn() -> None:
    """Other connections and timers would wait otherwise, however much has arrived."""
    request = heartbeat(1, "x" * 30_000)
    turns: list[int] = []

    async def scenario(world: World) -> None:
        turn = 0

        async def count_turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        def handle(*_: Any) -> HeartbeatResponse:
            turns.append(turn)
            return HeartbeatResponse()

        async with serving(world, handle) as served:
            client = await served.connect()
            counting = asyncio.ensure_future(count_turns())
            client.send(*[request] * 200)
            await client.wait_responses(200)
            counting.cancel()

    run(scenario)
    assert len(turns) == 200
    in_one_turn = max(turns.count(turn) for turn in turns)
    assert in_one_turn * len(request) <= READ_BYTES_A_TURN + READ_BYTES + len(request)
