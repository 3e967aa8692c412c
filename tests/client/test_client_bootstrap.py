"""Bootstrap servers are tried with a stagger, and the first answer wins. Connections that were idle
for long, and metadata that is old, are renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.client.bootstrap import STAGGER_S
from penstock.client.client import Client
from penstock.client.cluster import CONNECTION_MAX_IDLE_S, METADATA_MAX_AGE_S
from penstock.client.errors import ConnectionFailed, NotABroker
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.world import World
from penstock.world.sim import Node, Simulation
from tests.client.scripted_broker import PORT, TOPIC, ScriptedBroker, play


class Frozen(asyncio.Protocol):
    """A host that accepts connections and answers nothing, as a stopped process does."""

    opened = 0
    lost = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: ARG002
        Frozen.opened += 1

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        Frozen.lost += 1


def connect(
    servers: str,
    scenario: Callable[[Client], Coroutine[Any, Any, None]],
    *,
    frozen: str = "",
    seed: int = 1,
) -> tuple[float, str]:
    """Open a client, with a broker on b and a frozen host. Return the time until the client was
    open, and the digest of the run."""
    Frozen.opened = Frozen.lost = 0
    simulation = Simulation(seed=seed)
    hosts = {name: simulation.node(name) for name in ("a", "b", "frozen", "other")}
    took_s = 0.0

    async def main() -> None:
        await hosts["b"].run(listen(hosts["b"]))
        if frozen:
            await hosts[frozen].run(listen_frozen(hosts[frozen].world))
        await hosts["a"].run(run_client(hosts["a"].world))

    async def listen(node: Node) -> None:
        await ScriptedBroker().listen(node.world)

    async def listen_frozen(world: World) -> None:
        for port in (PORT, PORT + 1):
            await world.network.listen(Frozen, "", port)

    async def run_client(world: World) -> None:
        nonlocal took_s
        started_s = world.clock.monotonic()
        async with Client(world, servers) as client:
            took_s = world.clock.monotonic() - started_s
            await scenario(client)
        await asyncio.sleep(1)

    simulation.run(main())
    return took_s, simulation.trace.digest()


async def nothing(_client: Client) -> None:
    pass


def test_the_next_server_answers_while_the_first_one_is_frozen() -> None:
    took_s, _digest = connect("frozen,b", nothing, frozen="frozen")
    assert STAGGER_S <= took_s < STAGGER_S + 0.5
    assert (Frozen.opened, Frozen.lost) == (1, 1)


def test_several_frozen_servers_cost_one_stagger_each() -> None:
    took_s, _digest = connect("frozen:9092,frozen:9093,b", nothing, frozen="frozen")
    assert 2 * STAGGER_S <= took_s < 2 * STAGGER_S + 0.5
    assert (Frozen.opened, Frozen.lost) == (2, 2)


def test_a_server_that_refuses_is_followed_by_the_next_one_at_once() -> None:
    took_s, _digest = connect("other,other:1,b", nothing)
    assert took_s < STAGGER_S


def test_a_seed_determines_the_run() -> None:
    first, second = (connect("frozen,b", nothing, frozen="frozen", seed=7) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ("nowhere,nobody:1", "cannot connect to nowhere:9092: .*; cannot connect to nobody:1: "),
        ("nowhere", "cannot connect to nowhere:9092: "),
    ],
)
def test_host_names_that_do_not_exist_are_no_brokers(servers: str, message: str) -> None:
    with pytest.raises(NotABroker, match=message):
        connect(servers, nothing)


def test_a_server_that_refuses_may_come_back() -> None:
    with pytest.raises(ConnectionFailed, match=r"nowhere:9092.*other:9092") as raised:
        connect("nowhere,other", nothing)
    assert not isinstance(raised.value, NotABroker)


@pytest.mark.parametrize("api_timeout_s", [None, 60.0])
def test_another_broker_is_asked_when_one_freezes(api_timeout_s: float | None) -> None:
    """By default retries end with the request timeout, and there is no time for one."""
    broker = ScriptedBroker()
    broker.add_broker("c")

    async def scenario(client: Client) -> None:
        assert (await client.cluster.any_broker()).address == "b:9092"
        broker.frozen = True
        if api_timeout_s is None:
            with pytest.raises(ConnectionFailed, match="did not respond to Metadata within 30 s"):
                await client.admin.list_topics()
        else:
            assert await client.admin.list_topics() == [TOPIC]

    play(broker, scenario, api_timeout_s=api_timeout_s)


def test_an_idle_connection_is_opened_again_before_brokers_close_it() -> None:
    async def scenario(client: Client) -> None:
        first = await client.cluster.any_broker()
        await asyncio.sleep(CONNECTION_MAX_IDLE_S - 1)
        assert await client.cluster.any_broker() is first
        assert await client.cluster.broker(1) is first
        await asyncio.sleep(2)
        assert await client.admin.list_topics() == [TOPIC]
        assert first.closed
        second = await client.cluster.any_broker()
        assert await client.cluster.broker(1) is second

    play(ScriptedBroker(), scenario)


def test_an_old_topic_is_fetched_again() -> None:
    broker = ScriptedBroker()

    async def scenario(client: Client) -> None:
        assert len((await client.cluster.topic(TOPIC)).partitions) == 1
        broker.leaders = [1, 1]
        await asyncio.sleep(METADATA_MAX_AGE_S - 1)
        assert len((await client.cluster.topic(TOPIC)).partitions) == 1
        await asyncio.sleep(1)
        assert len((await client.cluster.topic(TOPIC)).partitions) == 2
        requests = [request for _, _, request in broker.requests]
        assert sum(isinstance(request, MetadataRequest) for request in requests) == 3

    play(broker, scenario)
