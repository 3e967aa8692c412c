"""A replica moves to another log directory during appends, truncations and crashes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from pathlib import Path
from uuid import UUID

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.log import names
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.log.lookup import offset_for_timestamp
from penstock.log.store import LogStore
from penstock.replica.throttle import ReplicationQuota
from penstock.sim.harness import InvariantViolated
from penstock.sim.log.model import LogModel
from penstock.sim.log.run import DIRECTORIES, LogRun
from penstock.world import World
from penstock.world.sim import Node, NodeCrashed, SimDisk, Simulation
from tests.log.making import (
    NOW_MS,
    PARTITION,
    SMALL,
    TOPIC_ID,
    batch,
    in_real_world,
    sequenced,
    values,
)

SYNCED_BEFORE_MOVE = 20


async def two_directories(world: World, path: str, config: LogConfig = SMALL) -> LogStore:
    for name in ("a", "b"):
        world.disk.make_dirs(f"{path}/{name}")
        if world.disk.exists(f"{path}/{name}/.lock"):
            world.disk.remove(f"{path}/{name}/.lock")
    store = LogStore(
        world,
        [LogDirectory(f"{path}/{name}", UUID(int=number)) for number, name in enumerate("ab", 200)],
    )
    await store.open(lambda _partition: config)
    return store


def log_in_a(store: LogStore, count: int = 0, config: LogConfig = SMALL) -> Log:
    log = store.create(PARTITION, TOPIC_ID, config, store.directories[0])
    for number in range(count):
        log.append_as_leader(batch(str(number)), number // 30)
    return log


async def move_to_b(store: LogStore) -> None:
    move = store.moves.begin(PARTITION, store.directories[1])
    assert move is not None
    await store.moves.run(move)


def live_copies(world: World, path: str) -> list[str]:
    return [name for name in ("a", "b") if world.disk.exists(f"{path}/{name}/{PARTITION}")]


def test_a_replica_moves_with_its_epochs_producers_and_start_offset(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await two_directories(world, path)
        log = log_in_a(store, 100)
        log.append_as_leader(sequenced(7, 0, "of a producer"), 4)
        log.advance_start(3)
        before = (
            log.start_offset,
            log.end_offset,
            log.epochs.entries[:],
            log.producers.producers[7].last_sequence,
        )
        await move_to_b(store)
        assert log is store.logs[PARTITION]
        assert (log.directory, log.path) == (store.directories[1], f"{path}/b/{PARTITION}")
        assert (
            log.start_offset,
            log.end_offset,
            log.epochs.entries,
            log.producers.producers[7].last_sequence,
        ) == before
        assert values(log) == [*map(str, range(3, 100)), "of a producer"]
        assert len(log.segments) > 3
        assert log.append_as_leader(sequenced(7, 0, "of a producer"), 4).duplicate
        assert (await offset_for_timestamp(log, world, NOW_MS)) == (NOW_MS, 3, 0)
        log.append_as_leader(batch("after"), 5)
        await log.flushing.all()
        assert live_copies(world, path) == ["b"]
        assert not world.disk.exists(f"{log.path}/.penstock_moved")
        reopened = (await two_directories(world, path)).logs[PARTITION]
        assert values(reopened) == [*map(str, range(3, 100)), "of a producer", "after"]
        assert reopened.start_offset == 3
        assert reopened.epochs.entries == log.epochs.entries
        assert reopened.topic_id == TOPIC_ID

    in_real_world(tmp_path, main)


@pytest.mark.parametrize("flush_messages", [1, 2**63 - 1])
def test_appends_and_syncs_continue_during_a_move(flush_messages: int) -> None:
    simulation = Simulation(11)
    node = simulation.node("n1")
    config = LogConfig(segment_bytes=2_000, flush_messages=flush_messages)

    async def main() -> None:
        store = await two_directories(node.world, "", config)
        log = log_in_a(store, 500, config)
        moving = asyncio.create_task(move_to_b(store))
        count = 500
        while not moving.done():
            end = log.append_as_leader(batch(str(count)), 20).end_offset
            count += 1
            if log.flushing.due():
                await log.flushing.to(end)
                assert log.flushing.recovery_point >= end
            await asyncio.sleep(0.0002)
        await moving
        assert log.directory is store.directories[1]
        assert values(log) == [str(number) for number in range(count)]
        assert count > 505, "the move ended before anything was appended"

    simulation.run(node.run(main()))


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power-loss"])
def test_a_crash_at_any_change_to_the_disk_leaves_one_valid_log(power_loss: bool) -> None:
    ends = [_crash_after(changes, power_loss) for changes in range(0, 240, 3)]
    assert {end for end in ends if end is not None} == {"a", "b"}, (
        "some crashes are before the last step, and some after it"
    )
    assert None in ends, "the last one is after the move"


def _crash_after(changes: int, power_loss: bool) -> str | None:
    """Return the directory of the log after a crash; None if the move ended before it."""
    simulation = Simulation(changes)
    node = simulation.node("n1")
    appended = [str(number) for number in range(60)]

    async def live() -> bool:
        store = await two_directories(node.world, "")
        log = log_in_a(store, SYNCED_BEFORE_MOVE)
        await log.flushing.all()
        for name in ("/a", "/"):
            node.world.disk.sync_dir(name)
        node.drive.stop_after(changes)
        moving = asyncio.create_task(move_to_b(store))
        for value in appended[SYNCED_BEFORE_MOVE:]:
            log.append_as_leader(batch(value), 0)
            await asyncio.sleep(0.001)
        await moving
        return True

    async def main() -> str | None:
        done = False
        with contextlib.suppress(NodeCrashed):
            done = await node.run(live())
        node.crash(power_loss=power_loss)
        world = node.restart()
        left = None if done else live_copies(world, "")[0]
        await node.run(_check_what_is_left(world, appended))
        return left

    return simulation.run(main())


async def _check_what_is_left(world: World, appended: list[str]) -> None:
    store = await two_directories(world, "")
    assert not store.damaged
    found = values(store.logs[PARTITION])
    assert len(found) >= SYNCED_BEFORE_MOVE
    assert found == appended[: len(found)]
    assert len(live_copies(world, "")) == 1
    for move in list(store.moves.under_way.values()):
        await store.moves.run(move)
        assert live_copies(world, "") == ["b"]
    assert values(store.logs[PARTITION]) == found
    await store.remove_due_files()
    found_names = [
        name for directory in store.directories for name in world.disk.list(directory.path)
    ]
    assert not [name for name in found_names if name.endswith("-future")]


class MovingLogRun(LogRun):
    """The random runs of `penstock.sim.log.run`, with moves."""

    moved = 0
    resumed = 0
    moving: set[asyncio.Task[None]]

    async def _step(self, partition: TopicPartition, log: Log, model: LogModel) -> None:
        if self.rng.random() < 0.15:
            target = self.rng.choice(self.store.directories)
            try:
                move = self.store.moves.begin(partition, target)
            except KafkaError:
                assert len(self.store.online) < len(DIRECTORIES)
                move = None
            if move is not None:
                self.moving.add(asyncio.create_task(self.store.moves.run(move)))
                MovingLogRun.moved += 1
        await super()._step(partition, log, model)

    async def _work(self) -> None:
        resumed = list(self.store.moves.under_way.values())
        MovingLogRun.resumed += len(resumed)
        self.moving = {asyncio.create_task(self.store.moves.run(move)) for move in resumed}
        await super()._work()
        await asyncio.gather(*self.moving, return_exceptions=True)

    async def _check(self, flipped: str | None) -> None:
        await super()._check(flipped)
        disk = SimDisk(self.node.drive)
        for partition in self.models:
            if flipped is None and all(disk.exists(f"{path}/{partition}") for path in DIRECTORIES):
                raise InvariantViolated(f"{partition} is in both directories")


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_random_runs_with_moves(first: int) -> None:
    MovingLogRun.moved = MovingLogRun.resumed = 0
    for seed in range(first, first + 5):
        simulation = Simulation(seed)
        simulation.run(MovingLogRun(simulation).main())
    assert MovingLogRun.moved > 5
    assert MovingLogRun.resumed > 0


async def _partly_moved(store: LogStore) -> int:
    """Stop a move midway, as the shutdown of a node does. Return how far the copy is."""
    moving = asyncio.create_task(move_to_b(store))
    while (
        PARTITION not in store.moves.under_way
        or store.moves.under_way[PARTITION].future.end_offset < 100
    ):
        await asyncio.sleep(0.0001)
    moving.cancel()
    await asyncio.gather(moving, return_exceptions=True)
    return store.moves.under_way[PARTITION].future.end_offset


@pytest.mark.parametrize("clean", [True, False])
def test_a_move_continues_after_a_restart(clean: bool) -> None:
    async def main(node: Node) -> None:
        store = await two_directories(node.world, "")
        log = log_in_a(store, 200)
        copied = await _partly_moved(store)
        assert copied < 200
        log.append_as_leader(batch("200"), 9)
        await log.flushing.all()
        if clean:
            await store.close()
        store = await two_directories(node.world, "")
        move = store.moves.under_way[PARTITION]
        assert move.future.end_offset == copied, "what was copied is not copied again"
        store.logs[PARTITION].append_as_leader(batch("201"), 10)
        await store.moves.run(move)
        assert live_copies(node.world, "") == ["b"]
        log = store.logs[PARTITION]
        assert (log.directory.path, values(log)) == ("/b", [str(n) for n in range(202)])
        assert move.future.truncation_count == 0
        await store.close()
        store = await two_directories(node.world, "")
        assert not store.moves.under_way
        assert values(store.logs[PARTITION]) == [str(n) for n in range(202)]

    _simulated(main)


def test_a_copy_that_differs_from_its_log_is_copied_again_after_a_restart() -> None:
    async def main(node: Node) -> None:
        store = await two_directories(node.world, "")
        log = log_in_a(store, 200)
        copied = await _partly_moved(store)
        await store.truncate({PARTITION: copied - 20})
        for number in range(copied - 20, 200):
            log.append_as_leader(batch(f"other {number}"), 9)
        await store.close()
        store = await two_directories(node.world, "")
        await store.moves.run(store.moves.under_way[PARTITION])
        log = store.logs[PARTITION]
        assert (log.directory.path, values(log)) == (
            "/b",
            [*map(str, range(copied - 20)), *(f"other {n}" for n in range(copied - 20, 200))],
        )

    _simulated(main)


@pytest.mark.parametrize("change", ["cancelled", "of another topic"])
def test_a_move_that_ended_does_not_continue_after_a_restart(change: str) -> None:
    async def main(node: Node) -> None:
        store = await two_directories(node.world, "")
        log = log_in_a(store, 200)
        await _partly_moved(store)
        if change == "cancelled":
            assert store.moves.begin(PARTITION, store.directories[0]) is None
        else:
            log.topic_id = UUID(int=5_000)
            log.write_topic_id()
        await store.close()
        store = await two_directories(node.world, "")
        assert not store.moves.under_way
        await store.remove_due_files()
        assert not node.world.disk.exists(f"/b/{PARTITION}")
        assert not [name for name in node.world.disk.list("/b") if str(PARTITION) in name]
        assert values(store.logs[PARTITION]) == [str(n) for n in range(200)]

    _simulated(main)


def test_a_log_truncated_during_its_move_is_copied_again() -> None:
    async def main(node: Node) -> None:
        store = await two_directories(node.world, "")
        log = log_in_a(store, 200)
        moving = asyncio.create_task(move_to_b(store))
        while (
            PARTITION not in store.moves.under_way
            or store.moves.under_way[PARTITION].future.end_offset < 150
        ):
            await asyncio.sleep(0.0001)
        await store.truncate({PARTITION: 100})
        for number in range(100, 180):
            log.append_as_leader(batch(f"another {number}"), 9)
        await moving
        assert log.directory is store.directories[1]
        assert values(log) == [
            *map(str, range(100)),
            *(f"another {number}" for number in range(100, 180)),
        ]

    _simulated(main)


def test_the_high_watermark_is_saved_again_after_a_move() -> None:
    """It is read from the checkpoint of the log's own directory."""

    async def main(node: Node) -> None:
        store = await two_directories(node.world, "")
        log_in_a(store, 10)
        await store.offsets.save_high_watermarks({PARTITION: 7})
        assert names.HIGH_WATERMARKS not in store.due.changed_checkpoints
        await move_to_b(store)
        assert names.HIGH_WATERMARKS in store.due.changed_checkpoints
        await store.offsets.save_high_watermarks({PARTITION: 7})
        assert names.HIGH_WATERMARKS not in store.due.changed_checkpoints
        assert (await two_directories(node.world, "")).offsets.read_high_watermarks() == {
            PARTITION: 7
        }

    _simulated(main)


def test_records_deleted_during_a_move_stay_deleted_after_a_crash() -> None:
    async def main(node: Node) -> None:
        store = await two_directories(node.world, "")
        log = store.create(PARTITION, TOPIC_ID, SMALL, store.directories[0])
        for number in range(40):
            log.append_as_leader(batch(*(f"{number}.{part}" for part in range(5))), 0)
        log.advance_start(102)
        await move_to_b(store)
        assert (log.start_offset, values(log)[0]) == (102, "20.2")
        node.crash(power_loss=False)

    async def after(node: Node) -> None:
        log = (await two_directories(node.world, "")).logs[PARTITION]
        assert (log.directory.path, log.start_offset, values(log)[0]) == ("/b", 102, "20.2")

    simulation = Simulation(3)
    node = simulation.node("n1")

    async def both() -> None:
        with pytest.raises(NodeCrashed):
            await node.run(_crashing(main, node))
        node.restart()
        await node.run(after(node))

    simulation.run(both())


async def _crashing(main: object, node: Node) -> None:
    assert callable(main)
    await main(node)
    node.world.disk.list("/")


def test_of_two_directories_the_target_of_the_move_is_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if the old one is damaged. An incomplete copy is removed and logged."""

    async def main(world: World, path: str) -> None:
        for name in ("a", "b"):
            store = await two_directories(world, path)
            await store.offsets.forget_deleted({})
            store.create(
                PARTITION, TOPIC_ID, SMALL, store.directories["ab".index(name)]
            ).append_as_leader(batch(name, name), 0)
            await store.close()
            world.disk.rename(f"{path}/{name}/{PARTITION}", f"{path}/kept-{name}")
        for name in ("a", "b"):
            world.disk.rename(f"{path}/kept-{name}", f"{path}/{name}/{PARTITION}")
        world.disk.replace(f"{path}/b/{PARTITION}/.penstock_moved", b"1\n")
        world.disk.make_dirs(f"{path}/a/other-3.{UUID(int=5).hex}-future")
        store = await two_directories(world, path)
        assert not store.damaged
        log = store.logs[PARTITION]
        assert (log.directory.path, log.start_offset, values(log)) == (f"{path}/b", 1, ["b"])
        assert live_copies(world, path) == ["b"]
        await store.remove_due_files()
        assert not [name for name in world.disk.list(f"{path}/a") if "other-3" in name]

    with caplog.at_level(logging.WARNING):
        in_real_world(tmp_path, main)
    assert "-future: other-3 does not move there" in caplog.text


def test_a_move_can_be_reversed_and_a_moving_partition_deleted() -> None:
    async def main(node: Node) -> None:
        store = await two_directories(node.world, "")
        log, (a, b) = log_in_a(store, 300), store.directories
        first = store.moves.begin(PARTITION, b)
        assert first is not None
        assert store.moves.begin(PARTITION, b) is None, "it moves there already"
        running = asyncio.create_task(store.moves.run(first))
        await asyncio.sleep(0.002)
        assert store.moves.begin(PARTITION, a) is None, "it is there already"
        await running
        assert log.directory is a
        second = store.moves.begin(PARTITION, b)
        assert second is not None
        running = asyncio.create_task(store.moves.run(second))
        await asyncio.sleep(0.002)
        store.delete(PARTITION)
        await store.offsets.forget_deleted({})
        again = store.create(PARTITION, UUID(int=4712), SMALL, b)
        await running
        assert again.path == f"/b/{PARTITION}"
        assert again.end_offset == 0
        assert not store.moves.under_way
        await asyncio.sleep(100)
        await store.remove_due_files()
        left = [
            name
            for directory in ("/a", "/b")
            for name in node.world.disk.list(directory)
            if name.startswith(str(PARTITION))
        ]
        assert left == [], "the new log has no files before its first append"
        assert store.online == [a, b]

    _simulated(main)


@pytest.mark.parametrize("broken", ["/b/", "/a/"], ids=["target", "source"])
def test_a_disk_failure_ends_the_move(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main(node: Node) -> None:
        store = await two_directories(node.world, "")
        log = log_in_a(store, 300)
        moving = asyncio.create_task(move_to_b(store))
        await asyncio.sleep(0.002)
        node.drive.fail(broken, {"pwrite", "pread"}, errno.EIO)
        await moving
        assert log.directory is store.directories[0]
        assert not store.moves.under_way
        with pytest.raises(KafkaError) as refused:
            store.moves.begin(PARTITION, store.directories[1])
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        if broken == "/b/":
            log.append_as_leader(batch("still here"), 20)
            assert values(log)[-1] == "still here"

    with caplog.at_level(logging.ERROR):
        _simulated(main)
    assert f"{PARTITION} stays in /a: the move failed" in caplog.text


def test_deleting_a_partition_after_retention_leaves_its_directory_online() -> None:
    async def main(node: Node) -> None:
        store = await two_directories(node.world, "")
        log = log_in_a(store, 200)
        log.advance_start(150)
        assert await store.expiry.apply({PARTITION: 200}) > 0
        store.delete(PARTITION)
        await asyncio.sleep(100)
        await store.remove_due_files()
        assert store.online == store.directories

    _simulated(main)


def _simulated(main: object) -> None:
    assert callable(main)
    simulation = Simulation(5)
    node = simulation.node("n1")
    simulation.run(node.run(main(node)))


def test_a_move_keeps_to_the_rate_of_its_throttle() -> None:
    """replica.alter.log.dirs.io.max.bytes.per.second."""
    simulation = Simulation(1)
    world = simulation.node("n").world
    rate = 2_000

    async def main() -> None:
        store = await two_directories(world, "/d")
        log = log_in_a(store, 300)
        quota = ReplicationQuota()
        quota.set_rate(rate, world.clock.monotonic())
        store.moves.pause_s = lambda copied: quota.recorded_wait_s(copied, world.clock.monotonic())
        begun, size = world.clock.monotonic(), log.size
        await move_to_b(store)
        took = world.clock.monotonic() - begun
        assert log.directory is store.directories[1]
        assert values(log) == [*map(str, range(300))]
        # A second's worth is copied at once, and the last piece without a pause.
        assert size / rate - 2 < took < size / rate + 2
        assert took > 3

    simulation.run(main())
