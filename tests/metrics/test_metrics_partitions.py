"""What a broker's page says of partitions that need a fault: failed log directories, throttles,
hanging transactions."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.client.client import Client
from penstock.config.node import read_node_config
from penstock.ids import NO_TIMESTAMP, TopicPartition
from penstock.limits import LATE_TRANSACTION_MS
from penstock.metrics.reads import Reads
from penstock.metrics.samples import Samples, page
from penstock.metrics.turn import Turn
from penstock.node.broker.formatting import format_directories
from penstock.node.fetch.fetches import Fetches
from penstock.node.metrics.local_times import LocalTimes, Wanted
from penstock.node.metrics.partitions import PartitionSource
from penstock.node.node import Node
from penstock.records.build import build_batch, end_transaction_marker
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
    source = PartitionSource(world, node.metadata, node.replicas, fetches, Reads(world))
    await source(samples, turn)
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


def test_a_transaction_that_no_coordinator_ends_is_late() -> None:
    """A hanging transaction as in KIP-664: the batch is in the log, and no coordinator knows it."""
    late = "penstock_partitions_with_late_transactions"

    async def look(world: World, node: Node, client: Client) -> None:
        await client.admin.create_topic("paid", partitions=3)
        latest_ms = world.clock.now_ms() - 900_000 - LATE_TRANSACTION_MS
        times = [latest_ms - 1_000, latest_ms + 60_000, NO_TIMESTAMP]
        for index, timestamp in enumerate(times):
            partition = node.replicas.partitions[TopicPartition("paid", index)]
            batch = build_batch(
                [(None, b"x", (), timestamp)],
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            partition.log.append_as_leader(batch, partition.leader_epoch, from_client=False)
        assert value(await scraped(world, node), late) == 1
        await asyncio.sleep(120)
        assert value(await scraped(world, node), late) == 2
        for index in range(3):
            partition = node.replicas.partitions[TopicPartition("paid", index)]
            marker = end_transaction_marker(
                commit=False,
                producer_id=7,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=world.clock.now_ms(),
            )
            partition.log.append_as_leader(marker, partition.leader_epoch, from_client=False)
        assert value(await scraped(world, node), late) == 0

    run_broker(look)


def test_the_first_record_after_a_marker_is_found_in_the_log() -> None:
    """Offset 1 has the marker of the transaction of offset 0."""

    async def look(world: World, node: Node, client: Client) -> None:
        await client.admin.create_topic("paid")
        name, now_ms = TopicPartition("paid", 0), world.clock.now_ms()
        partition = node.replicas.partitions[name]
        producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
        ages_s = (600, 500, 400)
        times = [now_ms - age_s * 1000 for age_s in ages_s]
        records = [[(None, b"x", (), timestamp)] for timestamp in times]
        for batch in (
            build_batch(records[0], base_sequence=0, transactional=True, **producer),
            end_transaction_marker(
                commit=True, coordinator_epoch=0, timestamp=times[1], **producer
            ),
            build_batch(records[2]),
        ):
            partition.log.append_as_leader(batch, partition.leader_epoch, from_client=False)
        for offset, end, age_s in ((0, 3, 600), (1, 3, 400), (1, 2, 0), (2, 3, 400)):
            wanted = Wanted({}, name, partition, offset, end)
            await LocalTimes(world.clock, Reads(world)).look_up([wanted], Turn(world.clock))
            assert wanted.found is not None
            assert wanted.found.age_s(world.clock.now_ms()) == pytest.approx(age_s, abs=1)

    run_broker(look)
