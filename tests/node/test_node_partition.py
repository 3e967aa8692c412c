from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.node.partition import Partition
from penstock.records.record import read_records
from penstock.world import World
from penstock.world.sim import Simulation
from tests.log.making import PARTITION, SMALL, TOPIC_ID, batch, in_real_world, open_store


async def new_partition(world: World, path: str, config: LogConfig = SMALL) -> tuple[Partition, set[asyncio.Task[None]]]:
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Coroutine[Any, Any, None]) -> object:
        task = asyncio.create_task(work)
        tasks.add(task)
        return task

    log = (await open_store(world, path, config)).create(PARTITION, TOPIC_ID, config)
    return Partition(log, world, 3, spawn), tasks


def test_what_is_appended_is_committed_at_once_without_a_flush_setting(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        partition, _tasks = await new_partition(world, path)
        appended = partition.append(batch("a", "b"))
        assert partition.is_committed(appended.end_offset)
        assert (partition.high_watermark, partition.last_stable_offset, partition.log_end_offset) == (2, 2, 2)
        found = partition.read(0, 1_000, committed_only=False)
        assert found.range is not None
        assert [record.value for record in read_records(found.range.read())] == [b"a", b"b"]
        assert partition.read(2, 1_000, committed_only=False).range is None

    in_real_world(tmp_path, main)


def test_with_flush_messages_1_nothing_is_committed_before_it_is_synced() -> None:
    simulation = Simulation(1)
    node = simulation.node("n1")

    async def main() -> None:
        partition, tasks = await new_partition(node.world, "/d", replace(SMALL, flush_messages=1))
        end = partition.append(batch("a")).end_offset
        assert not partition.is_committed(end)
        assert partition.read(0, 1_000, committed_only=False).range is None, "nothing above the watermark is served (invariant 8)"
        await partition.wait_committed(end, node.world.clock.monotonic() + 1)
        assert partition.high_watermark == end
        assert partition.read(0, 1_000, committed_only=False).range is not None
        await asyncio.wait(tasks)

    simulation.run(node.run(main()))


def test_a_commit_that_does_not_come_in_time_is_told_so() -> None:
    simulation = Simulation(2)
    node = simulation.node("n1")

    async def main() -> None:
        partition, tasks = await new_partition(node.world, "/d", replace(SMALL, flush_messages=1))
        end = partition.append(batch("a")).end_offset
        with pytest.raises(KafkaError) as refused:
            await partition.wait_committed(end, node.world.clock.monotonic())
        assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
        await asyncio.wait(tasks)

    simulation.run(node.run(main()))


def test_a_failed_sync_fails_who_waits_for_it() -> None:
    simulation = Simulation(3)
    node = simulation.node("n1")

    async def main() -> None:
        partition, tasks = await new_partition(node.world, "/d", replace(SMALL, flush_messages=1))
        node.drive.fail("/d", {"sync"}, times=1)
        end = partition.append(batch("a")).end_offset
        with pytest.raises(KafkaError) as refused:
            await partition.wait_committed(end, node.world.clock.monotonic() + 60)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.high_watermark == 0
        await asyncio.wait(tasks)

    simulation.run(node.run(main()))


def test_watchers_are_told_once_a_turn(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        partition, _tasks = await new_partition(world, path)
        told: list[int] = []

        def callback() -> None:
            told.append(partition.high_watermark)

        partition.on_change(callback)
        for value in "abc":
            partition.append(batch(value))
        assert told == []
        await asyncio.sleep(0)
        assert told == [3]
        partition.delete_records(1)
        await asyncio.sleep(0)
        assert told == [3, 3]
        partition.off_change(callback)
        partition.append(batch("d"))
        await asyncio.sleep(0)
        assert told == [3, 3]

    in_real_world(tmp_path, main)


def test_epochs_are_fenced_and_records_deleted_up_to_the_watermark(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        partition, _tasks = await new_partition(world, path)
        for value in "abc":
            partition.append(batch(value))
        partition.check_epoch(-1)
        partition.check_epoch(3)
        for epoch, code in [(2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)]:
            with pytest.raises(KafkaError) as refused:
                partition.check_epoch(epoch)
            assert refused.value.code == code
        assert partition.delete_records(2) == 2
        for offset in (4, -2):
            with pytest.raises(KafkaError) as refused:
                partition.delete_records(offset)
            assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert partition.delete_records(-1) == 3
        with pytest.raises(KafkaError):
            partition.read(2, 1, committed_only=False)

    in_real_world(tmp_path, main)
