"""Copies of a replica in a log directory that it is not assigned to, after its creation there
failed."""

from __future__ import annotations

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


async def opened(world: World, path: str, assigned: UUID) -> LogStore:
    """Open the store of a broker whose metadata has this directory for the replica."""
    store = store_of(world, path, "a", "b")
    store.prepare()
    state = PartitionState(
        replicas=(2, 1), isr=(1,), leader=1, leader_epoch=0, directories=(UUID(int=999), assigned)
    )
    topic = TopicImage(PARTITION.topic, TOPIC_ID, {PARTITION.partition: state})
    remove_leftovers(store, world.disk, MetadataImage(topics={topic.name: topic}), 1)
    await store.open(lambda _partition: SMALL)
    return store


@pytest.mark.parametrize(("assigned", "served"), [(A, "a"), (B, "b")])
def test_the_copy_in_the_assigned_directory_is_the_replica(
    tmp_path: Path, assigned: UUID, served: str
) -> None:
    async def main(world: World, path: str) -> None:
        await written(world, path, "a")
        await written(world, path, "b")
        store = await opened(world, path, assigned)
        assert (values(store.logs[PARTITION]), store.damaged) == ([served], {})
        await store.remove_due_files()
        assert [
            name
            for name in "ab"
            if any(str(PARTITION) in entry for entry in world.disk.list(f"{path}/{name}"))
        ] == [served]

    in_real_world(tmp_path, main)


@pytest.mark.parametrize("assigned", [UNASSIGNED_DIRECTORY, UUID(int=202)])
def test_no_copy_is_removed_if_none_is_in_the_assigned_directory(
    tmp_path: Path, assigned: UUID
) -> None:
    async def main(world: World, path: str) -> None:
        await written(world, path, "a")
        await written(world, path, "b")
        store = await opened(world, path, assigned)
        assert "two log directories" in store.damaged[PARTITION]

    in_real_world(tmp_path, main)


def test_a_moved_replica_stays_in_its_new_directory(tmp_path: Path) -> None:
    """The metadata still has the old directory."""

    async def main(world: World, path: str) -> None:
        await written(world, path, "a")
        await written(world, path, "b")
        world.disk.open(f"{path}/b/{PARTITION}/{MOVED}", create=True)
        store = await opened(world, path, assigned=A)
        assert (values(store.logs[PARTITION]), store.damaged) == (["b"], {})

    in_real_world(tmp_path, main)


def test_replicas_without_records_have_no_files_and_are_served_after_a_restart() -> None:
    simulation = Simulation(1)
    machine = simulation.node("n1")
    config = read_node_config(PROPERTIES, "test")
    both = [TopicPartition("orders", 0), TopicPartition("orders", 1)]

    async def first_run() -> None:
        async with (
            serving(machine.world, config) as (node, bootstrap),
            Client(machine.world, bootstrap) as client,
        ):
            await client.admin.create_topic("orders", partitions=2)
            assert sorted(node.replicas.partitions) == both
            paths = {partition.directory.path for partition in node.replicas.partitions.values()}
            assert paths == {"/d0", "/d1"}

    async def second_run() -> None:
        async with serving(machine.world, config) as (node, _bootstrap):
            assert sorted(node.replicas.partitions) == both
            for name in both:
                partition = node.replicas.partitions[name]
                assert not machine.world.disk.exists(f"{partition.directory.path}/{name}")
                partition.append(batch("first"))
                assert machine.world.disk.is_dir(f"{partition.directory.path}/{name}")

    async def third_run() -> None:
        async with serving(machine.world, config) as (node, _bootstrap):
            assert [values(node.replicas.store.logs[name]) for name in both] == [["first"]] * 2

    async def main() -> None:
        format_directories(
            machine.world.disk,
            machine.world.rng,
            config,
            "simulated-cluster-id00",
            ignore_formatted=False,
            say=lambda _line: None,
        )
        await machine.run(first_run())
        await machine.run(second_run())
        await machine.run(third_run())

    simulation.run(main())


def test_a_broker_serves_its_replicas_after_a_log_directory_was_replaced() -> None:
    """The new directory has another id than the one that the metadata has for the replicas."""
    simulation = Simulation(1)
    machine = simulation.node("n1")
    config = read_node_config(PROPERTIES, "test")

    def format_new(*, ignore_formatted: bool) -> None:
        format_directories(
            machine.world.disk,
            machine.world.rng,
            config,
            "simulated-cluster-id00",
            ignore_formatted=ignore_formatted,
            say=lambda _line: None,
        )

    async def first_run() -> None:
        async with (
            serving(machine.world, config) as (_node, bootstrap),
            Client(machine.world, bootstrap) as client,
        ):
            await client.admin.create_topic("orders", partitions=2)

    async def second_run() -> None:
        async with serving(machine.world, config) as (node, _bootstrap):
            assert len(node.replicas.partitions) == 2

    async def main() -> None:
        format_new(ignore_formatted=False)
        await machine.run(first_run())
        machine.world.disk.remove_tree("/d1")
        format_new(ignore_formatted=True)
        await machine.run(second_run())

    simulation.run(main())
