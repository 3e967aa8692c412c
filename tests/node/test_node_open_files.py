"""A broker that has too many open files for a while continues when it can open files again."""

from __future__ import annotations

import asyncio
import errno

import pytest

from penstock.client.client import Client
from penstock.config.node import read_node_config
from penstock.log.directory import TooManyFiles
from penstock.node.broker.formatting import format_directories
from penstock.start import serving
from penstock.world.sim import Simulation
from tests.log.making import batch, values

PROPERTIES = b"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://n1:9092,CONTROLLER://n1:9093
controller.listener.names=CONTROLLER
log.dirs=/d0
metadata.log.dir=/metadata
"""


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_partitions_are_created_without_files_and_written_to_when_files_can_be_opened(
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
            partitions = list(node.replicas.partitions.values())
            assert [partition.is_leader for partition in partitions] == [True] * 3
            for partition in partitions:
                with pytest.raises(TooManyFiles):
                    partition.append(batch("refused"))
                assert partition.log_end_offset == 0
            await asyncio.sleep(100)
            machine.drive.heal()
            for partition in partitions:
                partition.append(batch("written"))
                assert values(node.replicas.store.logs[partition.topic_partition]) == ["written"]
            assert node.replicas.store.online == node.replicas.store.directories
            assert not node.supervisor.has_failed

    simulation.run(machine.run(main()))
