"""Limits on connections: of the node, of a listener, of an address, and of file descriptors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from penstock.config import node_settings
from penstock.config.setting import Setting
from penstock.limits import ACCEPT_BACKLOG, MAX_OPEN_LOG_FILES
from penstock.server.dispatch import Dispatch
from penstock.server.quotas import ConnectionLimits, ConnectionQuotas, connections_below
from penstock.server.server import Server
from penstock.server.state import Bounds, bounds_of
from penstock.world import World
from tests.server.serving import (
    HEARTBEAT,
    SERVED,
    Served,
    config,
    heartbeat,
    respond_now,
    serving,
)
from tests.server.test_server_life import connect_or_lost
from tests.world.both_worlds import Play

DYNAMIC_LIMITS: tuple[Setting[Any], ...] = (
    node_settings.MAX_CONNECTIONS,
    node_settings.MAX_CONNECTIONS_PER_IP,
    node_settings.MAX_CONNECTIONS_PER_IP_OVERRIDES,
)
CLIENTS, BETWEEN = "PLAINTEXT", "BETWEEN"


@dataclass(eq=False)
class FakeConnection:
    listener_name: str = CLIENTS
    address: str = "10.0.0.1"
    last_active: float = 0.0
    is_idle: bool = True
    evicted: list[str] = field(default_factory=list)

    def evict(self, reason: str) -> None:
        self.evicted.append(reason)


def quotas(max_descriptors: int | None = None, **limits: Any) -> ConnectionQuotas:
    reserved = frozenset({BETWEEN})
    return ConnectionQuotas(
        ConnectionLimits(reserved_listeners=reserved, **limits), max_descriptors
    )


def admitted(made: ConnectionQuotas, *connections: FakeConnection) -> list[bool]:
    return [made.admit(connection, now=0.0) for connection in connections]


def test_an_address_has_its_own_limit_or_the_one_of_all() -> None:
    made = quotas(per_address=2, address_overrides={"10.0.0.2": 3, "10.0.0.3": 0})
    for address, most in (("10.0.0.1", 2), ("10.0.0.2", 3), ("10.0.0.3", 0)):
        several = [FakeConnection(address=address) for _ in range(4)]
        assert admitted(made, *several) == [number < most for number in range(4)]


def test_a_listener_has_its_own_limit_even_if_it_is_reserved() -> None:
    made = quotas(per_listener={CLIENTS: 2, BETWEEN: 1})
    assert admitted(made, *(FakeConnection() for _ in range(3))) == [True, True, False]
    assert admitted(made, *(FakeConnection(BETWEEN) for _ in range(2))) == [True, False]


def test_a_released_connection_makes_room() -> None:
    made = quotas(total=1, per_address=1, per_listener={CLIENTS: 1})
    first = FakeConnection()
    assert admitted(made, first, FakeConnection()) == [True, False]
    made.release(first)
    made.release(first)
    assert admitted(made, FakeConnection(), FakeConnection()) == [True, False]


def test_a_reserved_listener_gets_the_place_of_the_least_recently_used_idle_connection() -> None:
    made = quotas(total=3)
    busy = FakeConnection(last_active=1.0, is_idle=False)
    oldest, newest = FakeConnection(last_active=2.0), FakeConnection(last_active=3.0)
    assert admitted(made, newest, busy, oldest) == [True] * 3
    assert admitted(made, FakeConnection()) == [False], "clients do not push out each other"
    brokers = [FakeConnection(BETWEEN) for _ in range(4)]
    assert admitted(made, *brokers) == [True, True, True, False]
    assert [len(member.evicted) for member in (oldest, newest, busy)] == [1, 1, 1]
    assert not any(broker.evicted for broker in brokers)


@pytest.mark.parametrize(
    ("descriptors", "connections"),
    [(None, 2**31 - 1), (300, 150), (1_024, 512), (20_000, 13_000), (1_000_000, 990_000)],
)
def test_connections_leave_descriptors_for_files(descriptors: int | None, connections: int) -> None:
    most = connections_below(descriptors)
    assert most >= connections
    assert descriptors is None or descriptors - most >= min(
        MAX_OPEN_LOG_FILES + ACCEPT_BACKLOG, descriptors // 2
    )
    made = quotas(descriptors and min(descriptors, 300))
    several = [FakeConnection() for _ in range(200)]
    assert sum(admitted(made, *several)) == (200 if descriptors is None else 150)


def test_limits_come_from_the_config() -> None:
    limits = bounds_of(
        config(
            more="max.connections=100\nlistener.name.plaintext.max.connections=50\n"
            "max.connections.per.ip=5\n"
            "max.connections.per.ip.overrides=127.0.0.1:7, [::1]:8 ,fe80::1:9\n"
        )
    ).connections
    assert limits == ConnectionLimits(
        total=100,
        per_address=5,
        address_overrides={"127.0.0.1": 7, "::1": 8, "fe80::1": 9},
        per_listener={"PLAINTEXT": 50},
        reserved_listeners=frozenset({"CONTROLLER"}),
    )


def test_connections_beyond_a_lowered_limit_are_closed_the_least_recently_used_first() -> None:
    made = quotas(total=4)
    several = [FakeConnection(last_active=active) for active in (3.0, 1.0, 2.0)]
    assert admitted(made, *several, FakeConnection(BETWEEN)) == [True] * 4
    made.update(ConnectionLimits(total=2, reserved_listeners=frozenset({BETWEEN})))
    made.close_excess(now=5.0)
    assert [bool(connection.evicted) for connection in several] == [False, True, True]
    assert admitted(made, FakeConnection()) == [False]


def test_all_connections_beyond_a_lowered_limit_are_found_in_one_pass() -> None:
    looked_at = []

    class Counted(FakeConnection):
        @property
        def is_idle(self) -> bool:
            looked_at.append(self)
            return True

        @is_idle.setter
        def is_idle(self, _idle: bool) -> None:
            pass

    made = quotas(total=1_000)
    assert all(admitted(made, *(Counted() for _ in range(1_000))))
    made.update(ConnectionLimits(total=10, reserved_listeners=frozenset({BETWEEN})))
    made.close_excess(now=5.0)
    assert len(looked_at) == 1_000


def test_dynamic_limits_apply_to_the_next_connection_unless_they_are_invalid(play: Play) -> None:
    settings = {setting.name: setting.default_value() for setting in DYNAMIC_LIMITS}

    class Dynamic:
        def __getitem__(self, setting: Setting[Any], /) -> Any:
            return settings[setting.name]

    async def scenario(world: World) -> list[bool]:
        dispatch = Dispatch(None, {HEARTBEAT: SERVED[HEARTBEAT]}, lambda _key: respond_now)
        server = Server(world, config(), dispatch, settings=Dynamic)
        await server.start()
        await server.accept_clients()
        served, answers = Served(world, server), []
        for name, value, expected in (
            ("max.connections", 2**31 - 1, True),
            ("max.connections", 1, False),
            ("max.connections", 9, True),
            ("max.connections.per.ip", 2, False),
            ("max.connections.per.ip.overrides", "accepted by another release", True),
        ):
            settings[name] = value
            answers.append(await is_served(served) == expected)
        await server.stop(within_s=1)
        return answers

    assert play(scenario) == [True] * 5


async def is_served(served: Served, listener: str = CLIENTS) -> bool:
    client = await connect_and_ask(served, listener)
    return client == [1]


async def connect_and_ask(served: Served, listener: str) -> list[int]:
    try:
        client = await served.connect(listener)
    except ConnectionError:
        return []
    client.send(heartbeat(1))
    return await client.wait_responses(1)


def test_the_controllers_listener_is_reachable_on_a_full_node(play: Play) -> None:
    async def scenario(world: World) -> tuple[list[bool], bool, int]:
        limits = ConnectionLimits(total=3, reserved_listeners=frozenset({"CONTROLLER"}))
        async with serving(world, respond_now, Bounds(connections=limits)) as served:
            clients = [await served.connect() for _ in range(3)]
            for client in clients:
                client.send(heartbeat(1))
                await client.wait_responses(1)
            refused = await connect_or_lost(served)
            assert refused is None or refused.order == []
            reached = [await is_served(served, "CONTROLLER") for _ in range(2)]
            lost = sum(client.lost.is_set() for client in clients)
            return reached, await is_served(served), lost

    reached, client_served, lost = play(scenario)
    assert reached == [True, True]
    assert lost == 2
    assert not client_served


def test_a_node_short_of_descriptors_refuses_connections_before_files_fail() -> None:
    """The network of a simulated node with few descriptors."""
    from penstock.world.sim import Simulation

    simulation = Simulation(seed=1)
    node = simulation.node("n1")

    class FewDescriptors:
        listen = node.world.network.listen
        connect = node.world.network.connect

        def max_descriptors(self) -> int:
            return 20

    async def scenario() -> list[bool]:
        world = replace(node.world, network=FewDescriptors())
        async with serving(world, respond_now) as served:
            return [await is_served(served) for _ in range(12)]

    assert simulation.run(node.run(scenario())) == [True] * 10 + [False] * 2
