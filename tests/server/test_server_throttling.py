"""Clients beyond a quota: their responses leave at once, then their connections are muted, and no
other client waits (KIP-219)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from typing import Any

import pytest

from penstock.handlers.context import ConnectionHandle, RequestContext
from penstock.protocol.codec import decode
from penstock.protocol.framing import frame_request
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.security.quotas.client_quotas import ClientQuotas
from penstock.security.quotas.entities import QuotaEntity
from penstock.server.dispatch import Handler
from penstock.server.state import Bounds
from penstock.server.throttling import Timed, charge_request
from penstock.world import World
from penstock.world.real import run
from tests.server.serving import (
    HEARTBEAT,
    PRODUCE,
    Client,
    Served,
    heartbeat,
    respond_now,
    serving,
)
from tests.server.test_server_order import until
from tests.world.both_worlds import Play

TEST: QuotaEntity = (("client-id", "test"),)
OTHER: QuotaEntity = (("client-id", "other"),)


def set_quota(served: Served, entity: QuotaEntity, **values: float) -> None:
    served.server.state.client_quotas.apply([entity], {entity: values})


def throttle_ms(client: Client, number: int) -> int:
    """Return the throttle time of a heartbeat's response, which begins after its header."""
    return decode(HeartbeatResponse, 4, client.responses[number][1][1:]).throttle_time_ms


def respond_to_produce(
    _node: Any, request: ProduceRequest, _context: RequestContext
) -> ProduceResponse | None:
    return ProduceResponse() if request.acks else None


def produce(correlation: int, size: int, acks: int = 1, client_id: str = "test") -> bytes:
    data = ProduceRequest.TopicData.PartitionData(index=0, records=b"x" * size)
    topic = ProduceRequest.TopicData(name="t", partition_data=(data,))
    parts = frame_request(ProduceRequest(acks=acks, topic_data=(topic,)), 9, correlation, client_id)
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]


def test_a_throttled_client_is_answered_at_once_and_then_muted(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world, respond_now) as served:
            set_quota(served, OTHER, producer_byte_rate=1)
            throttled, other = await served.connect(), await served.connect()
            began = world.clock.monotonic()
            throttled.send(heartbeat(1, "x" * 400), heartbeat(2), heartbeat(3))
            assert await throttled.wait_responses(1) == [1]
            assert throttle_ms(throttled, 0) == 400
            for number in range(20):
                other.send(heartbeat(number))
                await other.wait_responses(number + 1)
                assert throttle_ms(other, number) == 0
            assert world.clock.monotonic() - began < 0.4 or throttled.order != [1]
            assert await throttled.wait_responses(3) == [1, 2, 3]
            assert world.clock.monotonic() - began >= 0.39
            assert throttle_ms(throttled, 1) == throttle_ms(throttled, 2) == 0

    play(scenario)


def test_without_quotas_no_connection_is_muted(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world, respond_now) as served:
            client = await served.connect()
            client.send(heartbeat(1, "x" * 30_000), heartbeat(2))
            assert await client.wait_responses(2) == [1, 2]

    play(scenario)


def test_bytes_of_produce_requests_are_charged(play: Play) -> None:
    async def scenario(world: World) -> None:
        handlers: dict[int, Handler] = {PRODUCE: respond_to_produce, HEARTBEAT: respond_now}
        async with serving(world, handlers) as served:
            set_quota(served, TEST, producer_byte_rate=100_000)
            client = await served.connect()
            began = world.clock.monotonic()
            # Ten seconds of the quota are allowed at once; these are 10.3.
            client.send(produce(1, 500_000), produce(2, 530_000), produce(3, 10))
            assert await client.wait_responses(2) == [1, 2]
            assert [
                decode(ProduceResponse, 9, client.responses[number][1][1:]).throttle_time_ms > 0
                for number in range(2)
            ] == [False, True]
            assert await client.wait_responses(3) == [1, 2, 3]
            assert world.clock.monotonic() - began >= 0.29
            counts = served.server.state.client_quotas.produce.counts
            assert counts.throttled >= 1
            assert counts.throttled_ms >= 290

    play(scenario)


def test_a_produce_request_without_a_response_is_charged_too(play: Play) -> None:
    async def scenario(world: World) -> None:
        handlers: dict[int, Handler] = {PRODUCE: respond_to_produce, HEARTBEAT: respond_now}
        async with serving(world, handlers) as served:
            set_quota(served, TEST, producer_byte_rate=100_000)
            client = await served.connect()
            began = world.clock.monotonic()
            client.send(produce(1, 1_030_000, acks=0), heartbeat(2))
            assert await client.wait_responses(1) == [2]
            assert world.clock.monotonic() - began >= 0.29

    play(scenario)


def test_all_connections_of_a_client_share_its_quota(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world, {PRODUCE: respond_to_produce}) as served:
            set_quota(served, TEST, producer_byte_rate=100_000)
            first, second, other = [await served.connect() for _ in range(3)]
            first.send(produce(1, 900_000))
            await first.wait_responses(1)
            second.send(produce(1, 130_000))
            await second.wait_responses(1)
            response = decode(ProduceResponse, 9, second.responses[0][1][1:])
            assert response.throttle_time_ms > 0
            other.send(produce(1, 900_000, client_id="other"))
            await other.wait_responses(1)
            assert decode(ProduceResponse, 9, other.responses[0][1][1:]).throttle_time_ms == 0

    play(scenario)


def test_the_time_of_requests_is_charged_up_to_a_window(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world, respond_now) as served:
            set_quota(served, TEST, request_percentage=1e-9)
            client = await served.connect()
            for number in range(50):
                client.send(heartbeat(number))
                await client.wait_responses(number + 1)
                if throttle_ms(client, number):
                    break
                # The simulated clock stands still while a handler runs.
                served.server.state.client_quotas.request.record("ANONYMOUS", "test", 1, 0)
            assert 0 < throttle_ms(client, number) <= 1_000

    play(scenario)


def test_the_later_turns_of_a_request_are_charged_too() -> None:
    """The check of many names takes several turns of the event loop."""
    now = 0.0

    async def in_turns() -> str:
        nonlocal now
        for _ in range(3):
            await asyncio.sleep(0)
            now += 0.5
        return "done"

    async def scenario(_world: World) -> None:
        nonlocal now
        timed = Timed(in_turns(), lambda: now)
        task = asyncio.ensure_future(timed)
        while not task.done():
            await asyncio.sleep(0)
            now += 7.0  # of other clients
        assert (task.result(), timed.used_s) == ("done", 1.5)

        cancelled = asyncio.ensure_future(Timed(asyncio.Event().wait(), lambda: now))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    run(scenario)


def test_a_quota_counts_what_a_request_takes_after_its_first_turn() -> None:
    def handle(_node: Any, _request: HeartbeatRequest, _context: RequestContext) -> Any:
        async def later() -> HeartbeatResponse:
            await asyncio.sleep(0)
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                pass
            return HeartbeatResponse()

        return later()

    async def scenario(world: World) -> None:
        async with serving(world, handle) as served:
            # Half of the 200 ms, over ten windows of a second.
            set_quota(served, TEST, request_percentage=1)
            client = await served.connect()
            client.send(heartbeat(1))
            await client.wait_responses(1)
            assert 0 < throttle_ms(client, 0) <= 1_000

    run(scenario)


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_client_that_poses_as_a_node_has_quotas(is_refused: bool) -> None:
    quotas = ClientQuotas()
    quotas.apply([TEST], {TEST: {"request_percentage": 1e-9}})
    connection = ConnectionHandle()
    connection.is_refused_node = is_refused
    context = RequestContext(27, 1, 7, "test", "PLAINTEXT", "a", 1, "10.0.0.2:1", 0.0, connection)
    throttled = [charge_request(quotas, context, 10, 0.0, 1.0, answers=True) for _ in range(2)]
    assert (throttled[-1] > 0) is is_refused


def test_a_response_that_waits_is_told_the_time_that_is_left(play: Play) -> None:
    async def scenario(world: World) -> None:
        answer = asyncio.Event()

        def handle(_node: Any, request: HeartbeatRequest, _context: RequestContext) -> Any:
            async def later() -> HeartbeatResponse:
                await answer.wait()
                return HeartbeatResponse(throttle_time_ms=len(request.member_id))

            return later()

        async with serving(world, handle) as served:
            set_quota(served, OTHER, producer_byte_rate=1)
            client = await served.connect()
            client.send(heartbeat(1, "x" * 300))
            await until(lambda: served.server.state.waiting == 1)
            client.send(heartbeat(2))
            answer.set()
            assert await client.wait_responses(2) == [1, 2]
            assert throttle_ms(client, 0) == 300

    play(scenario)


def test_a_muted_connection_ends_with_the_server(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world, respond_now) as served:
            set_quota(served, OTHER, producer_byte_rate=1)
            client = await served.connect()
            client.send(heartbeat(1, "x" * 30_000), heartbeat(2))
            await client.wait_responses(1)
        await client.wait_lost()
        assert client.order == [1]

    play(scenario)


def test_a_muted_connection_with_a_part_of_a_request_is_closed_while_memory_is_short(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        throttle = asyncio.Event()

        async def respond() -> HeartbeatResponse:
            await throttle.wait()
            return HeartbeatResponse(throttle_time_ms=3_600_000)

        def respond_later(
            _node: Any, _request: HeartbeatRequest, _context: RequestContext
        ) -> Awaitable[HeartbeatResponse]:
            return respond()

        bounds = Bounds(max_node_inflight_bytes=3_000_000, max_request_bytes=4_000_000)
        async with serving(world, respond_later, bounds) as served:
            set_quota(served, OTHER, producer_byte_rate=1)
            memory = served.server.state.memory
            throttled, other = await served.connect(), await served.connect()
            begun = (4_000_000).to_bytes(4) + bytes(2_000_000)
            throttled.send(heartbeat(1), begun)
            await until(lambda: memory.used >= 2_000_000)
            throttle.set()
            assert await throttled.wait_responses(1) == [1]
            other.send(begun)
            await throttled.wait_lost()
            assert memory.evicted == 1
            assert not other.lost.is_set()

    play(scenario)


def test_connections_of_an_address_beyond_its_rate_are_refused(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world, respond_now) as served:
            set_quota(served, (("ip", None),), connection_creation_rate=0.1)
            first = await served.connect()
            for _ in range(4):
                # The simulated network reports the reset to the caller.
                with contextlib.suppress(ConnectionResetError):
                    await (await served.connect()).wait_lost()
            assert served.server.state.quotas.refused == 4
            first.send(heartbeat(1))
            assert await first.wait_responses(1) == [1]
            # The listener of controllers has no such limit.
            reserved = await served.connect("CONTROLLER")
            reserved.send(heartbeat(1))
            assert await reserved.wait_responses(1) == [1]

    play(scenario)
