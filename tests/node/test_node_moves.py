"""A move between log directories continues when its broker starts again."""

from __future__ import annotations

import asyncio

from penstock.client.client import Client
from penstock.config.node import read_node_config
from penstock.ids import TopicPartition
from penstock.node.broker.formatting import format_directories
from penstock.start import serving
from penstock.world.sim import Simulation
from tests.log.making import batch, values

PROPERTIES = b"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://n1:9092,CONTROLLER://n1:9093
controller.listener.names=CONTROLLER
log.dirs=/d0,/d1
"""
PARTITION = TopicPartition("orders", 0)


def test_a_broker_continues_its_moves_after_a_restart() -> None:
    simulation = Simulation(1)
    machine = simulation.node("n1")
    config = read_node_config(PROPERTIES, "test")

    async def begin_move() -> str:
        async with (
            serving(machine.world, config) as (node, bootstrap),
            Client(machine.world, bootstrap) as client,
        ):
            await client.admin.create_topic(PARTITION.topic)
            async with asyncio.timeout(5):
                while PARTITION not in node.replicas.partitions:
                    await asyncio.sleep(0.01)
            store = node.replicas.store
            log = store.logs[PARTITION]
            for number in range(50):
                log.append_as_leader(batch(str(number)), 0)
            [target] = [other for other in store.directories if other is not log.directory]
            assert store.moves.begin(PARTITION, target) is not None
            return target.path

    async def finish_move(target: str) -> None:
        async with serving(machine.world, config) as (node, _bootstrap):
            log = node.replicas.store.logs[PARTITION]
            async with asyncio.timeout(60):
                while log.directory.path != target:
                    await asyncio.sleep(0.1)
            assert node.replicas.partitions[PARTITION].log is log
            assert values(log) == [str(number) for number in range(50)]

    async def main() -> None:
        format_directories(
            machine.world.disk,
            machine.world.rng,
            config,
            "simulated-cluster-id00",
            ignore_formatted=False,
            say=lambda _line: None,
        )
        target = await machine.run(begin_move())
        await machine.run(finish_move(target))

    simulation.run(main())
