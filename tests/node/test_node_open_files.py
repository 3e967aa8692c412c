"""A broker that has too many open files for a while continues when it can open files again."""

from __future__ import annotations

import asyncio
import errno

import pytest

from penstock.client.client import Client
from penstock.config.node import read_node_config
from penstock.node.broker.formatting import format_directories
from penstock.start import serving
from penstock.world.sim import Simulation

PROPERTIES = b"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://n1:9092,CONTROLLER://n1:9093
controller.listener.names=CONTROLLER
log.dirs=/d0
metadata.log.dir=/metadata
"""


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_partitions_that_could_not_be_created_are_created_when_files_can_be_opened(
    number: int,
) -> None:
    simulation = Simulation(1)
    machine = simulation.node("n1")
    config = read_node_config(PROPERTIES, "test")

    async def main() -> None:
        format_directories(
            machine.world.disk,
            machine.world.rng,
            config,
            "simulated-cluster-id00",
            ignore_formatted=False,
            say=lambda _line: None,
        )
        async with (
            serving(machine.world, config) as (node, bootstrap),
            Client(machine.world, bootstrap) as client,
        ):
            machine.drive.fail("/d0", {"open", "read", "list", "sync_dir"}, number)
            await client.admin.create_topic("orders", partitions=3)
            await asyncio.sleep(100)
            assert not node.replicas.partitions
            machine.drive.heal()
            async with asyncio.timeout(10):
                while len(node.replicas.partitions) < 3:
                    await asyncio.sleep(0.1)
            assert all(partition.is_leader for partition in node.replicas.partitions.values())
            assert node.replicas.store.online == node.replicas.store.directories
            assert not node.supervisor.has_failed

    simulation.run(machine.run(main()))
