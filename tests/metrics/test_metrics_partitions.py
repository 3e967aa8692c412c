"""What a broker's page says of partitions that need a fault: failed log directories, throttles."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.client.client import Client
from penstock.config.node import read_node_config
from penstock.metrics.reads import Reads
from penstock.metrics.samples import Samples, page
from penstock.metrics.turn import Turn
from penstock.node.broker.formatting import format_directories
from penstock.node.fetch.fetches import Fetches
from penstock.node.metrics.partitions import PartitionSource
from penstock.node.node import Node
from penstock.start import serving
from penstock.world import World
from penstock.world.sim import Simulation
from tests.metrics.scrape import Page, parsed, value

PROPERTIES = b"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://n1:9092,CONTROLLER://n1:9093
controller.listener.names=CONTROLLER
log.dirs=/d0,/d1
"""
Work = Callable[[World, Node, Client], Coroutine[Any, Any, None]]


def run_broker(*lives: Work) -> None:
    """Run the broker once for each function, on the same disk."""
    simulation = Simulation(1)
    machine = simulation.node("n1")
    config = read_node_config(PROPERTIES, "test")

    async def live(work: Work) -> None:
        async with (
            serving(machine.world, config) as (node, bootstrap),
            Client(machine.world, bootstrap) as client,
        ):
            await work(machine.world, node, client)

    async def main() -> None:
        world = machine.world
        words = (world.disk, world.rng, config, "simulated-cluster-id00")
        format_directories(*words, ignore_formatted=False, say=lambda _line: None)
        for work in lives:
            await machine.run(live(work))

    simulation.run(main())


async def scraped(world: World, node: Node) -> Page:
    fetches = cast(Fetches, SimpleNamespace(delayed_count=0, sessions=()))
    samples, turn = Samples(), Turn(world.clock)
    await PartitionSource(world, node.replicas, fetches, Reads(world))(samples, turn)
    return parsed((await page(samples, turn)).decode())


def test_replicas_of_a_directory_that_failed_before_the_start_are_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[int] = []

    async def fill(world: World, node: Node, client: Client) -> None:
        await client.admin.create_topic("orders", partitions=8)
        assert value(await scraped(world, node), "penstock_offline_replicas") == 0
        partitions = node.replicas.partitions.values()
        failed.append(sum(each.directory.path == "/d1" for each in partitions))
        list_path = world.disk.list

        def broken(path: str) -> list[str]:
            if path.startswith("/d1"):
                raise OSError(errno.EIO, "broken")
            return list_path(path)

        monkeypatch.setattr(world.disk, "list", broken)

    async def look(world: World, node: Node, _client: Client) -> None:
        found = await scraped(world, node)
        assert 0 < failed[0] < 8
        assert len(node.replicas.partitions) == 8 - failed[0]
        assert value(found, "penstock_offline_replicas") == failed[0]
        assert value(found, "penstock_offline_log_directories") == 1

    run_broker(fill, look)


def test_throttles_have_a_rate_and_count_what_they_let_through() -> None:
    async def look(world: World, node: Node, _client: Client) -> None:
        found = await scraped(world, node)
        assert value(found, "penstock_replication_throttled_bytes_total", side="Leader") == 0
        assert not any(name == "penstock_replication_throttle_rate_bytes" for name, _ in found)
        throttle, now = node.replicas.throttles.leader, world.clock.monotonic()
        throttle.record(700, now)  # there is no throttle
        throttle.set_rate(1_000, now)
        throttle.record(3_000, now)
        found = await scraped(world, node)
        assert value(found, "penstock_replication_throttle_rate_bytes", side="Leader") == 1_000
        assert value(found, "penstock_replication_throttled_bytes_total", side="Leader") == 3_000
        assert value(found, "penstock_replication_throttle_seconds", side="Leader") > 1.5
        assert value(found, "penstock_replication_throttle_seconds", side="AlterLogDirs") == 0

    run_broker(look)
