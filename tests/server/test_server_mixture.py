"""Random mixtures of requests over a simulated network that splits and delays packets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.handlers.context import RequestContext
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.server.state import Bounds
from penstock.world.sim import Simulation
from tests.server.serving import Client, heartbeat, serving


@pytest.mark.parametrize("seed", range(20))
def test_responses_keep_the_order_of_any_mixture_of_requests(seed: int) -> None:
    """Packets are split and delayed at random, bounds are small, handlers take random times. Each
    client gets its own responses, once and in order."""
    simulation = Simulation(seed)
    simulation.network.split = 0.5
    node, rng = simulation.node("n1"), simulation.stream("requests")
    handled: dict[str, list[int]] = {}

    async def later(pause: float, *, response: bool) -> HeartbeatResponse | None:
        await asyncio.sleep(pause)
        return HeartbeatResponse() if response else None

    def handle(_node: Any, request: HeartbeatRequest, context: RequestContext) -> Any:
        handled.setdefault(context.peer, []).append(context.correlation_id)
        kind = request.member_id.rstrip("x")
        if kind in ("later", "later none"):
            return later(rng.random() / 100, response=kind == "later")
        return None if kind == "none" else HeartbeatResponse()

    async def use(client: Client) -> None:
        kinds = [rng.choice(["now", "now", "later", "later none", "none"]) for _ in range(60)] + [
            "now"
        ]
        for number, kind in enumerate(kinds):
            client.send(heartbeat(number, kind + "x" * rng.randrange(2_000)))
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random() / 50)
        expected = [number for number, kind in enumerate(kinds) if "none" not in kind]
        assert await client.wait_responses(len(expected)) == expected

    async def scenario() -> None:
        bounds = Bounds(max_inflight_requests=7, max_inflight_bytes=9_000)
        async with serving(node.world, handle, bounds) as served, asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(use(await served.connect()))

    simulation.run(node.run(scenario()))
    assert list(handled.values()) == [list(range(61))] * 5
