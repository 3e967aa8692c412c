from __future__ import annotations

import asyncio
import errno
import logging
import threading
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from penstock import limits
from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NodeId, TopicPartition
from penstock.limits import MAX_OPEN_LOG_FILES, REMEMBERED_TAIL_BATCHES
from penstock.log import names
from penstock.log.directory import LogDirectory, formatted_directory
from penstock.log.files import OpenFiles, max_open_files
from penstock.log.leader_epochs import EpochStart
from penstock.log.store import LogStore
from penstock.server.quotas import connections_below
from penstock.world import File, World
from penstock.world.real import RealDisk
from penstock.world.sim import Simulation
from tests.log.making import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    batch,
    in_real_world,
    open_store,
    sequenced,
    values,
)

OTHER = TopicPartition("orders", 1)


def two_directories(world: World, path: str) -> LogStore:
    for name in ("a", "b"):
        world.disk.make_dirs(f"{path}/{name}")
    return LogStore(
        world,
        [LogDirectory(f"{path}/{name}", UUID(int=number)) for number, name in enumerate("ab", 200)],
    )


def test_the_event_loop_runs_while_marks_of_moves_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may have 100,000 logs."""
    monkeypatch.setattr(limits, "MOVED_LOGS_A_TURN", 10)

    async def main(world: World, path: str) -> None:
        store = two_directories(world, path)
        for index in range(45):
            world.disk.make_dirs(f"{path}/b/orders-{index}")
        world.disk.open(f"{path}/b/orders-44/{names.MOVED}", create=True).close()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await store.prepare()
        counting.cancel()
        assert turns >= 4
        assert (
            store.moves.replaced_by(TopicPartition("orders", 44), store.directories[0])
            is (store.directories[1])
        )

    in_real_world(tmp_path, main)


def test_a_clean_shutdown_is_marked_once_and_opened_without_recovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        for number in range(50):
            log.append_as_leader(batch(str(number)), 3)
        await store.close(broker_epoch=17)
        again = await open_store(world, path)
        assert again.clean_epochs == {path: 17}
        assert not world.disk.exists(f"{path}/.kafka_cleanshutdown")
        reopened = again.logs[PARTITION]
        assert (reopened.topic_id, reopened.end_offset, reopened.flushing.recovery_point) == (
            TOPIC_ID,
            50,
            50,
        )
        assert reopened.epochs.entries == [(3, 0)]
        assert values(reopened) == [str(number) for number in range(50)]
        assert (await open_store(world, path)).clean_epochs == {path: None}

    with caplog.at_level(logging.WARNING):
        in_real_world(tmp_path, main)
    assert "recovery:" not in caplog.text
    assert "recovering" not in caplog.text


def test_a_directory_is_locked_by_one_store(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        first = await open_store(world, path)
        second = LogStore(world, [LogDirectory(path, UUID(int=200))])
        with pytest.raises(KafkaError, match="in use by another process"):
            await second.open(lambda _partition: SMALL)
        await first.close()
        await second.open(lambda _partition: SMALL)

    in_real_world(tmp_path, main)


def test_new_logs_are_spread_over_the_directories(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = two_directories(world, path)
        await store.open(lambda _partition: SMALL)
        for number in range(6):
            store.create(TopicPartition("t", number), TOPIC_ID, SMALL)
        placed = [log.directory.path for log in store.logs.values()]
        assert placed.count(f"{path}/a") == placed.count(f"{path}/b") == 3
        for partition, log in list(store.logs.items()):
            if log.directory is store.directories[0]:
                store.delete(partition)
        for number in range(6, 9):
            log = store.create(TopicPartition("t", number), TOPIC_ID, SMALL)
            assert log.directory is store.directories[0]

    in_real_world(tmp_path, main)


def test_a_partition_in_two_directories_is_served_from_the_first(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        for name in ("a", "b"):
            await open_store(world, f"{path}/{name}")
            store = await open_store(world, f"{path}/{name}")
            store.create(PARTITION, TOPIC_ID, SMALL).append_as_leader(batch(name), 0)
            await store.close()
        store = two_directories(world, path)
        await store.open(lambda _partition: SMALL)
        assert values(store.logs[PARTITION]) == ["a"]
        assert "two log directories" in store.damaged[PARTITION]

    in_real_world(tmp_path, main)


def test_the_high_watermark_of_a_log_is_in_the_checkpoint_of_its_directory(
    tmp_path: Path,
) -> None:
    """Another directory was offline when the topic was deleted, and still lists it."""

    async def main(world: World, path: str) -> None:
        for name, count, high_watermark in (("a", 10, 3), ("b", 100, 100)):
            store = await open_store(world, f"{path}/{name}")
            log = store.create(PARTITION, TOPIC_ID, SMALL)
            log.append_as_leader(batch(*map(str, range(count))), 0)
            await store.offsets.save_high_watermarks({PARTITION: high_watermark})
            await store.close()
        world.disk.remove_tree(f"{path}/b/{PARTITION}")
        store = two_directories(world, path)
        await store.open(lambda _partition: SMALL)
        assert store.offsets.read_high_watermarks() == {PARTITION: 3}

    in_real_world(tmp_path, main)


def test_an_unformatted_or_foreign_directory_is_refused_with_instructions(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        world.disk.make_dirs(path)
        with pytest.raises(KafkaError, match="penstock format"):
            formatted_directory(world.disk, path, NodeId(1))
        meta = b"version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAyA\n"
        world.disk.replace(f"{path}/meta.properties", meta)
        assert formatted_directory(world.disk, path, NodeId(1)).id == UUID(int=200)
        with pytest.raises(KafkaError, match="belongs to node 1"):
            formatted_directory(world.disk, path, NodeId(2))

    in_real_world(tmp_path, main)


@pytest.mark.parametrize(
    ("operation", "number"),
    [("sync", errno.EIO), ("pwrite", errno.EIO), ("pwrite", errno.ENOSPC), ("pread", errno.EIO)],
)
def test_a_failing_disk_takes_its_directory_offline_and_no_other(
    operation: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Rules 22 and 23, in simulation."""
    simulation = Simulation(1)
    node = simulation.node("n1")

    async def main() -> None:
        store = two_directories(node.world, "")
        await store.open(lambda _partition: SMALL)
        offline: list[str] = []
        store.on_failure = lambda directory: offline.append(directory.path)
        bad = store.create(PARTITION, TOPIC_ID, SMALL, store.directories[0])
        good = store.create(OTHER, TOPIC_ID, SMALL, store.directories[1])
        for log in (bad, good):
            log.append_as_leader(batch("before"), 0)
        for _ in range(
            REMEMBERED_TAIL_BATCHES
        ):  # with fewer the file would not be read to find the first
            bad.append_as_leader(batch("more"), 0)
        node.drive.fail("/a/orders-0", {operation}, number, times=1)
        with pytest.raises(KafkaError) as failed:
            bad.append_as_leader(batch("lost"), 0)
            await bad.flushing.all()
            values(bad)
        assert failed.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert offline == ["/a"]
        assert store.online == [store.directories[1]]
        for refused in (
            lambda: bad.append_as_leader(batch("x"), 0),
            lambda: bad.read(0, 1, below=1),
        ):
            with pytest.raises(KafkaError, match="offline"):
                refused()
        if bad.flushing.recovery_point < bad.end_offset:
            with pytest.raises(KafkaError, match="offline"):
                await bad.flushing.all()
        good.append_as_leader(batch("after"), 0)
        await good.flushing.all()
        assert values(good) == ["before", "after"]
        await store.close()

    with caplog.at_level(logging.ERROR):
        simulation.run(node.run(main()))
    assert "log directory /a is offline" in caplog.text


def test_a_store_without_an_online_directory_does_not_open() -> None:
    simulation = Simulation(2)
    node = simulation.node("n1")

    async def main() -> None:
        store = two_directories(node.world, "")
        node.drive.fail("/", {"list"}, errno.EIO)
        with pytest.raises(KafkaError, match="no log directory can be used"):
            await store.open(lambda _partition: LogConfig())

    simulation.run(node.run(main()))


def test_appends_made_during_a_sync_are_part_of_the_next() -> None:
    simulation = Simulation(3, trace_lines=10_000)
    node = simulation.node("n1")

    async def main() -> None:
        store = await open_store(node.world, "/d", LogConfig(flush_messages=1))
        log = store.create(PARTITION, TOPIC_ID, LogConfig(flush_messages=1))

        async def produce(number: int) -> None:
            await asyncio.sleep(number * 0.0001)
            end = log.append_as_leader(batch(str(number)), 0).end_offset
            assert log.flushing.due()
            await log.flushing.to(end)
            assert log.flushing.recovery_point >= end

        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(produce(number))
        assert not log.flushing.due()

    simulation.run(node.run(main()))
    syncs = [
        line
        for line in simulation.trace.lines()
        if " sync '/d/orders-0/00000000000000000000.log'" in line
    ]
    assert 2 <= len(syncs) < 30, "one hundred appends share a few syncs"


def test_deleting_a_partition_during_a_sync_leaves_its_directory_online() -> None:
    simulation = Simulation(5)
    node = simulation.node("n1")

    async def main() -> None:
        store = await open_store(node.world, "/d")
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        log.append_as_leader(batch("a"), 0)
        flush = asyncio.create_task(log.flushing.all())
        await asyncio.sleep(0)
        store.delete(PARTITION)
        with pytest.raises(KafkaError, match="was deleted"):
            await flush
        assert store.online

    simulation.run(node.run(main()))


def test_flush_ms_makes_a_flush_due() -> None:
    simulation = Simulation(4)
    node = simulation.node("n1")

    async def main() -> None:
        store = await open_store(node.world, "/d", LogConfig(flush_ms=1_000))
        log = store.create(PARTITION, TOPIC_ID, LogConfig(flush_ms=1_000))
        log.append_as_leader(batch("a"), 0)
        assert not log.flushing.due()
        await asyncio.sleep(1.01)
        assert log.flushing.due()
        await store.flush_due()
        assert not log.flushing.due()
        assert log.flushing.recovery_point == 1

    simulation.run(node.run(main()))


def test_a_log_that_is_deleted_while_others_are_written_out_is_no_disk_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.segment.WRITE_BACK_BYTES", 1)

    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        for partition in (PARTITION, OTHER):
            store.create(partition, TOPIC_ID, SMALL).append_as_leader(batch("value"), 0)
        writing = asyncio.create_task(store.write_back())
        await asyncio.sleep(0)
        store.delete(OTHER)
        await writing
        assert store.directories[0].failure is None

    in_real_world(tmp_path, main)


def test_what_an_active_segment_has_grown_by_is_written_out_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.segment.WRITE_BACK_BYTES", 100)

    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log, idle = (store.create(partition, TOPIC_ID, SMALL) for partition in (PARTITION, OTHER))
        written: list[int] = []
        for _ in range(2):
            log.append_as_leader(batch("value"), 0)
            await store.write_back()
            written.append(log.active.written_back)
        await store.write_back()
        assert written == [0, log.active.size]
        assert idle.active.written_back == 0
        while len(log.segments) == 1:
            log.append_as_leader(batch("value"), 0)
        await store.write_back()
        assert log.active.written_back == 0, "a sealed segment is synced instead"

    in_real_world(tmp_path, main)


def test_periodic_work_on_many_logs_yields_to_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EXPIRED_LOGS_A_TURN", "RETENTION_LOGS_A_TURN", "CHECKPOINTED_LOGS_A_TURN"):
        monkeypatch.setattr(f"penstock.limits.{name}", 2)

    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        for number in range(20):
            log = store.create(TopicPartition("many", number), TOPIC_ID, SMALL)
            log.append_as_leader(sequenced(5, 0, "a"), 0)
        for work in (
            partial(store.expire_producers, 10**15),
            partial(store.expiry.apply, dict.fromkeys(store.logs, 0)),
            store.offsets.save_recovery_points,
        ):
            task, turns = asyncio.create_task(work()), 0
            while not task.done():
                await asyncio.sleep(0)
                turns += 1
            assert turns >= 10
        checkpoint = store.checkpoints.read(store.directories[0].path, names.RECOVERY_POINTS)
        assert checkpoint == dict.fromkeys(store.logs, 0)

    in_real_world(tmp_path, main)


def test_a_store_that_closes_rewrites_no_leader_epochs_that_did_not_change(tmp_path: Path) -> None:
    """Each would take a sync, and a node with 10,000 logs a minute to stop."""

    async def main(world: World, path: str) -> None:
        inodes = []
        for number in range(3):
            store = await open_store(world, path)
            for partition in (PARTITION, OTHER):
                if partition not in store.logs:
                    store.create(partition, TOPIC_ID, SMALL)
            if number != 1:
                store.logs[PARTITION].append_as_leader(batch("value"), leader_epoch=number)
            await store.close()
            inodes.append(Path(path, str(PARTITION), names.LEADER_EPOCHS).stat().st_ino)
            assert not Path(path, str(OTHER), names.LEADER_EPOCHS).exists()
        assert inodes[0] == inodes[1] != inodes[2]
        log = (await open_store(world, path)).logs[PARTITION]
        assert [entry.epoch for entry in log.epochs.entries] == [0, 2]

    in_real_world(tmp_path, main)


def test_a_store_that_closes_syncs_no_file_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[threading.Thread] = []

    def replace(disk: RealDisk, path: str, data: bytes) -> None:
        syncs.append(threading.current_thread())
        original(disk, path, data)

    original = RealDisk.replace

    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        for number in range(20):
            log = store.create(TopicPartition("many", number), TOPIC_ID, SMALL)
            log.append_as_leader(batch("value"), leader_epoch=1)
            log.append_as_leader(batch("value"), leader_epoch=2)
            await log.flushing.all()
            log.advance_start(1)  # only the leader epochs are to be saved
        monkeypatch.setattr(RealDisk, "replace", replace)
        await store.close()
        assert len(syncs) >= 20
        assert threading.current_thread() not in syncs
        monkeypatch.undo()
        log = (await open_store(world, path)).logs[TopicPartition("many", 0)]
        assert log.epochs.entries == [EpochStart(2, 1)]

    in_real_world(tmp_path, main)


def test_a_store_that_closes_many_logs_keeps_few_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    def take_forgotten(files: OpenFiles) -> list[File]:
        forgotten = original(files)
        counts.append(len(forgotten))
        return forgotten

    original = OpenFiles.take_forgotten
    monkeypatch.setattr(OpenFiles, "take_forgotten", take_forgotten)
    monkeypatch.setattr("penstock.limits.CLOSED_LOGS_A_TURN", 5)

    async def main(world: World, path: str) -> None:
        store = await open_store(world, path, open_files=4)
        for number in range(50):
            log = store.create(TopicPartition("many", number), TOPIC_ID, SMALL)
            log.append_as_leader(batch("a"), 0)
        await store.close_files()
        counts.clear()
        await store.close()
        assert len(counts) == 11  # ten turns of five logs, and the files that were still open
        assert max(counts) < 5 * 5

    in_real_world(tmp_path, main)


def test_log_files_have_a_share_of_few_descriptors() -> None:
    assert max_open_files(None) == max_open_files(1_000_000) == MAX_OPEN_LOG_FILES
    for descriptors in (2, 300, 1_024, 4_096):
        assert 0 < max_open_files(descriptors) <= descriptors - connections_below(descriptors)
