"""Logs that have no replica on a broker when it starts: they are set aside, not deleted."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from penstock.client.client import Client
from penstock.config.node import read_node_config
from penstock.ids import TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.store import LogStore
from penstock.node.broker.formatting import format_directories
from penstock.start import serving
from penstock.world.sim import Simulation
from tests.log.making import SMALL, batch

PROPERTIES = b"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://n1:9092,CONTROLLER://n1:9093
controller.listener.names=CONTROLLER
log.dirs=/d0
metadata.log.dir=/metadata
"""
LONG = "t" * 249


@pytest.mark.parametrize("topic", ["gone", LONG])
def test_a_log_without_a_replica_is_kept_as_a_stray(topic: str) -> None:
    simulation = Simulation(1)
    machine = simulation.node("n1")
    config = read_node_config(PROPERTIES, "test")

    async def write_stray() -> None:
        """As a broker leaves it whose cluster lost its metadata."""
        store = LogStore(machine.world, [LogDirectory("/d0", UUID(int=5))])
        await store.open(lambda _partition: SMALL)
        log = store.create(TopicPartition(topic, 0), UUID(int=6), SMALL)
        log.append_as_leader(batch("kept"), 0)
        await store.close()

    async def serve() -> None:
        async with (
            serving(machine.world, config) as (node, bootstrap),
            Client(machine.world, bootstrap) as client,
        ):
            assert not node.replicas.store.logs
            await asyncio.sleep(3_600)
            await client.admin.create_topic(topic)
            async with asyncio.timeout(5):
                while not node.replicas.partitions:
                    await asyncio.sleep(0.01)
            [partition] = node.replicas.partitions.values()
            assert partition.log_end_offset == 0
            await client.admin.delete_topic(topic)
            await asyncio.sleep(3_600)

    async def main() -> None:
        format_directories(
            machine.world.disk,
            machine.world.rng,
            config,
            "simulated-cluster-id00",
            ignore_formatted=False,
            say=lambda _line: None,
        )
        await machine.run(write_stray())
        for _start in range(2):
            await machine.run(serve())
            disk = machine.world.disk
            [stray] = [name for name in disk.list("/d0") if disk.is_dir(f"/d0/{name}")]
            assert stray.endswith("-stray")
            assert len(stray) <= 255
            assert b"kept" in disk.read(f"/d0/{stray}/{0:020d}.log")

    simulation.run(main())
