"""Copies of a replica in a log directory that it is not assigned to, after its creation there
failed."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.client.client import Client
from penstock.config.node import read_node_config
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.names import LOCK, MOVED
from penstock.log.store import LogStore
from penstock.metadata.image import UNASSIGNED_DIRECTORY, MetadataImage, PartitionState, TopicImage
from penstock.node.broker.directories import remove_leftovers
from penstock.node.broker.formatting import format_directories
from penstock.start import serving
from penstock.world import Disk, World
from penstock.world.sim import SimDrive, Simulation
from tests.log.making import PARTITION, SMALL, TOPIC_ID, batch, in_real_world, values

A, B, C = UUID(int=200), UUID(int=201), UUID(int=202)
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
        world, [LogDirectory(f"{path}/{name}", {"a": A, "b": B, "c": C}[name]) for name in names]
    )


async def written(world: World, path: str, name: str) -> None:
    store = store_of(world, path, name)
    await store.open(lambda _partition: SMALL)
    store.create(PARTITION, TOPIC_ID, SMALL).append_as_leader(batch(name), 0)
    await store.close()


async def opened(world: World, path: str, assigned: UUID, names: str = "ab") -> LogStore:
    """Open the store of a broker whose metadata has this directory for the replica."""
    store = store_of(world, path, *names)
    for directory in store.directories:
        if world.disk.exists(f"{directory.path}/{LOCK}"):
            world.disk.remove(f"{directory.path}/{LOCK}")  # of the process that crashed
    await store.prepare()
    state = PartitionState(
        replicas=(2, 1), isr=(1,), leader=1, leader_epoch=0, directories=(UUID(int=999), assigned)
    )
    topic = TopicImage(PARTITION.topic, TOPIC_ID, {PARTITION.partition: state})
    await remove_leftovers(store, world, MetadataImage(topics={topic.name: topic}), 1)
    await store.open(lambda _partition: SMALL)
    return store


def copies(world: World, path: str, names: str) -> list[str]:
    return [
        name
        for name in names
        if any(str(PARTITION) in entry for entry in world.disk.list(f"{path}/{name}"))
    ]


def fail_deletions(
    monkeypatch: pytest.MonkeyPatch, store: LogStore, drive: SimDrive, *paths: str
) -> None:
    """Let the disks of some directories fail when a copy in them is to be deleted."""
    mark_deleted = store.mark_deleted

    def fail(partition: TopicPartition, directory: LogDirectory, *rest: Any) -> None:
        if directory.path in paths:
            drive.fail(f"{directory.path}/", {"rename"}, errno.EIO)
        mark_deleted(partition, directory, *rest)

    monkeypatch.setattr(store, "mark_deleted", fail)


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
        assert copies(world, path, "ab") == [served]

    in_real_world(tmp_path, main)


def test_the_disk_is_not_asked_about_each_partition_of_the_cluster() -> None:
    simulation = Simulation(1)
    machine = simulation.node("n1")

    async def main() -> None:
        store = store_of(machine.world, "", "a", "b")
        state = PartitionState(
            replicas=(1, 2), isr=(1,), leader=1, leader_epoch=0, directories=(A, B)
        )
        topic = TopicImage(PARTITION.topic, TOPIC_ID, dict.fromkeys(range(1_000), state))
        disk = CountingDisk(machine.world.disk)
        world = replace(machine.world, disk=cast("Disk", disk))
        await remove_leftovers(store, world, MetadataImage(topics={topic.name: topic}), 1)
        assert disk.calls == ["list", "list"]

    simulation.run(machine.run(main()))


class CountingDisk:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._disk, name)


@pytest.mark.parametrize("assigned", [UNASSIGNED_DIRECTORY, UUID(int=203)])
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


@pytest.mark.parametrize(("assigned", "served"), [(A, "a"), (B, "b")])
def test_of_two_copies_with_markers_of_an_earlier_version_the_assigned_one_is_the_replica(
    tmp_path: Path, assigned: UUID, served: str
) -> None:
    """These markers have no id: one of them may have outlived its move."""

    async def main(world: World, path: str) -> None:
        for name in "ab":
            await written(world, path, name)
            world.disk.replace(f"{path}/{name}/{PARTITION}/{MOVED}", b"0\n")
        store = await opened(world, path, assigned)
        assert (values(store.logs[PARTITION]), store.damaged) == ([served], {})

    in_real_world(tmp_path, main)


def test_an_interrupted_move_is_finished_although_the_metadata_has_the_old_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(1)
    machine = simulation.node("n1")

    async def main() -> None:
        world, drive = machine.world, machine.drive
        store = store_of(world, "", "a", "b")
        await store.open(lambda _partition: SMALL)
        log = store.create(PARTITION, TOPIC_ID, SMALL, store.directories[0])
        log.append_as_leader(batch("moved"), 0)
        move = store.moves.begin(PARTITION, store.directories[1])
        assert move is not None
        fail_deletions(monkeypatch, store, drive, "/a")
        await store.moves.run(move)
        assert copies(world, "", "ab") == ["a", "b"]
        drive.heal()
        store = await opened(world, "", assigned=A)
        assert (values(store.logs[PARTITION]), store.damaged) == (["moved"], {})
        assert store.logs[PARTITION].directory.path == "/b"
        assert not world.disk.exists(f"/a/{PARTITION}")
        assert not world.disk.exists(f"/b/{PARTITION}/{MOVED}")

    simulation.run(machine.run(main()))


@pytest.mark.parametrize("source", ["b", "c"])
def test_a_moved_copy_on_a_repaired_disk_does_not_replace_a_later_replica(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disk c fails during a move to a, then disk a fails, and the partition is reassigned to
    another broker and back: it is in b. The mark of the copy in a is about another move."""
    simulation = Simulation(1)
    machine = simulation.node("n1")

    async def main() -> None:
        world, drive = machine.world, machine.drive
        store = store_of(world, "", "a", "b", "c")
        a, b, c = store.directories
        await store.open(lambda _partition: SMALL)
        log = store.create(PARTITION, TOPIC_ID, SMALL, b if source == "b" else c)
        log.append_as_leader(batch("old"), 0)
        move = store.moves.begin(PARTITION, a)
        assert move is not None
        fail_deletions(monkeypatch, store, drive, "/a", "/c")
        if source == "b":
            c.fail("test", OSError(errno.EIO, "I/O error"))
        await store.moves.run(move)
        assert (log.directory, store.online) == (a, [a, b])
        with pytest.raises(KafkaError):
            store.delete(PARTITION)
        await store.offsets.forget_deleted({})
        log = store.create(PARTITION, TOPIC_ID, SMALL, b)
        log.append_as_leader(batch("new"), 1)
        await log.flushing.all()
        drive.heal()
        store = await opened(world, "", assigned=B, names="abc")
        assert (values(store.logs[PARTITION]), store.damaged) == (["new"], {})
        await store.remove_due_files()
        assert copies(world, "", "abc") == ["b"]
        assert len(store.online) == 3

    simulation.run(machine.run(main()))


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
