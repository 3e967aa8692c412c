"""What a failed creation leaves in a log directory, when the replica was made in another one."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from uuid import UUID

import pytest

from penstock.client.client import Client
from penstock.config.node import read_node_config
from penstock.ids import TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.names import MOVED
from penstock.log.store import LogStore
from penstock.metadata.image import UNASSIGNED_DIRECTORY, MetadataImage, PartitionState, TopicImage
from penstock.node.broker.directories import remove_leftovers
from penstock.node.broker.formatting import format_directories
from penstock.start import serving
from penstock.world import World
from penstock.world.sim import Simulation
from tests.log.making import PARTITION, SMALL, TOPIC_ID, batch, in_real_world, values

A, B = UUID(int=200), UUID(int=201)
PROPERTIES = b"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://n1:9092,CONTROLLER://n1:9093
controller.listener.names=CONTROLLER
log.dirs=/d0,/d1
"""


def store_of(world: World, path: str, *names: str) -> LogStore:
    for name in names:
        world.disk.make_dirs(f"{path}/{name}")
    return LogStore(
        world, [LogDirectory(f"{path}/{name}", {"a": A, "b": B}[name]) for name in names]
    )


async def written(world: World, path: str, name: str) -> None:
    store = store_of(world, path, name)
    await store.open(lambda _partition: SMALL)
    store.create(PARTITION, TOPIC_ID, SMALL).append_as_leader(batch(name), 0)
    await store.close()


async def opened(world: World, path: str, known: UUID) -> LogStore:
    """As a node opens them that the controller has told where the replica lies."""
    store = store_of(world, path, "a", "b")
    store.prepare()
    state = PartitionState(
        replicas=(2, 1), isr=(1,), leader=1, leader_epoch=0, directories=(UUID(int=999), known)
    )
    topic = TopicImage(PARTITION.topic, TOPIC_ID, {PARTITION.partition: state})
    remove_leftovers(store, world.disk, MetadataImage(topics={topic.name: topic}), 1)
    await store.open(lambda _partition: SMALL)
    return store


@pytest.mark.parametrize(("known", "served"), [(A, "a"), (B, "b")])
def test_the_replica_is_where_the_controller_knows_it_to_be(
    tmp_path: Path, known: UUID, served: str
) -> None:
    async def main(world: World, path: str) -> None:
        await written(world, path, "a")
        await written(world, path, "b")
        store = await opened(world, path, known)
        assert (values(store.logs[PARTITION]), store.damaged) == ([served], {})
        await store.remove_due_files()
        assert [
            name
            for name in "ab"
            if any(str(PARTITION) in one for one in world.disk.list(f"{path}/{name}"))
        ] == [served]

    in_real_world(tmp_path, main)


@pytest.mark.parametrize("known", [UNASSIGNED_DIRECTORY, UUID(int=202)])
def test_nothing_is_removed_on_a_guess(tmp_path: Path, known: UUID) -> None:
    async def main(world: World, path: str) -> None:
        await written(world, path, "a")
        await written(world, path, "b")
        store = await opened(world, path, known)
        assert "two log directories" in store.damaged[PARTITION]

    in_real_world(tmp_path, main)


def test_a_replica_that_has_moved_stays_where_it_went(tmp_path: Path) -> None:
    """The controller hears of it only later."""

    async def main(world: World, path: str) -> None:
        await written(world, path, "a")
        await written(world, path, "b")
        world.disk.open(f"{path}/b/{PARTITION}/{MOVED}", create=True)
        store = await opened(world, path, known=A)
        assert (values(store.logs[PARTITION]), store.damaged) == (["b"], {})

    in_real_world(tmp_path, main)


def test_a_replica_is_served_again_after_its_creation_failed_once() -> None:
    """A disk is full for a moment: the replica is made on the other one, and the node finds both
    when it starts anew."""
    simulation = Simulation(1)
    machine = simulation.node("n1")
    config = read_node_config(PROPERTIES, "test")

    async def first_life() -> None:
        async with (
            serving(machine.world, config) as (node, bootstrap),
            Client(machine.world, bootstrap) as client,
        ):
            machine.drive.fail("/d1", {"pwrite"}, errno.ENOSPC, times=1)
            await client.admin.create_topic("orders", partitions=2)
            async with asyncio.timeout(5):
                while len(node.replicas.partitions) < 2:
                    await asyncio.sleep(0.01)
            assert {
                partition.directory.path for partition in node.replicas.partitions.values()
            } == {"/d0"}

    async def second_life() -> None:
        async with serving(machine.world, config) as (node, _bootstrap):
            assert sorted(node.replicas.partitions) == [
                TopicPartition("orders", 0),
                TopicPartition("orders", 1),
            ]

    async def main() -> None:
        format_directories(
            machine.world.disk,
            machine.world.rng,
            config,
            "simulated-cluster-id00",
            ignore_formatted=False,
            say=lambda _line: None,
        )
        await machine.run(first_life())
        await machine.run(second_life())

    simulation.run(main())
