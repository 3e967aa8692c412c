"""The rules of compaction: tombstones, markers, lags, memory, merging, and what is not
compacted."""

from __future__ import annotations

import asyncio
import dataclasses
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from penstock.config.topic import LogConfig
from penstock.log import names
from penstock.log.checkpoint import parse_offsets
from penstock.log.compaction.cleanable import cleanable
from penstock.log.compaction.filter import LastOffsets
from penstock.log.compaction.run import Pace
from penstock.log.compaction.work import Job, JobLost, abandon, advance
from penstock.log.log import Log
from penstock.log.saved_offsets import StillListed
from penstock.log.store import LogStore
from penstock.records.batch import read_header
from penstock.records.compression import Codec
from penstock.records.record import open_batch
from penstock.world import World
from penstock.world.sim import Simulation
from tests.log.compacting import COMPACTED, all_batches, compact, keyed, stable_offset
from tests.log.making import PARTITION, TOPIC_ID, batch, marker, open_store, records

Test = Callable[[World, LogStore, Log], Coroutine[Any, Any, None]]


def with_log(test: Test, config: LogConfig = COMPACTED) -> None:
    simulation = Simulation(3)
    node = simulation.node("n1")

    async def main() -> None:
        store = await open_store(node.world, "/data", config)
        await test(node.world, store, store.create(PARTITION, TOPIC_ID, config))

    simulation.run(node.run(main()))


def write(log: Log, count: int, keys: int, codec: Codec = Codec.NONE) -> None:
    for number in range(count):
        log.append_as_leader(keyed((f"k{number % keys}", f"v{number}"), codec=codec), 0)


def values(log: Log) -> dict[str, str | None]:
    return {
        (record.key or b"").decode(): None if record.value is None else record.value.decode()
        for record in records(log)
    }


@pytest.mark.parametrize("codec", list(Codec))
def test_the_newest_record_of_each_key_keeps_its_offset(codec: Codec) -> None:
    async def test(_world: World, store: LogStore, log: Log) -> None:
        write(log, 200, 7, codec)
        newest = records(log)[-7:]
        assert await compact(store, log) == 1
        assert records(log) == newest
        assert (log.start_offset, log.end_offset, log.clean_offset) == (0, 200, 200)
        assert await compact(store, log) == 0

    with_log(test)


def test_adjacent_small_segments_are_merged() -> None:
    async def test(world: World, store: LogStore, log: Log) -> None:
        write(log, 200, 3)
        for _run in range(5):
            write(log, 2, 2)
            await compact(store, log)
        assert [segment.base_offset for segment in log.segments] == [0, 210]
        await asyncio.sleep(1)
        await store.remove_due_files()
        left = [
            name
            for name in world.disk.list(log.path)
            if not name.endswith((names.LEADER_EPOCHS, names.PARTITION_METADATA))
        ]
        assert left == [
            *(
                names.segment_file(0, kind)
                for kind in (names.OFFSET_INDEX, names.LOG, names.TIME_INDEX, names.TXN_INDEX)
            ),
            *(
                names.segment_file(210, kind) for kind in (names.LOG, names.SNAPSHOT)
            ),  # the active one has its indexes in memory
        ]

    with_log(test)


def test_a_tombstone_stays_until_its_delete_horizon() -> None:
    async def test(_world: World, store: LogStore, log: Log) -> None:
        log.append_as_leader(keyed(("a", "1"), ("b", "1")), 0)
        log.append_as_leader(keyed(("a", None), ("b", "2"), codec=Codec.ZSTD), 0)
        before = records(log)[2:]
        await compact(store, log)
        assert records(log) == before
        header = next(header for header, _batch in all_batches(log) if header.record_count)
        assert header.has_delete_horizon
        assert header.base_timestamp > COMPACTED.delete_retention_ms
        await asyncio.sleep(0.5)
        log.append_as_leader(keyed(("c", "1")), 0)
        await compact(store, log)
        assert values(log) == {"a": None, "b": "2", "c": "1"}
        await asyncio.sleep(2)
        log.append_as_leader(keyed(("c", "2")), 0)
        await compact(store, log)
        assert values(log) == {"b": "2", "c": "2"}
        assert [record.offset for record in records(log)] == [3, 5]

    with_log(test)


def test_a_marker_is_removed_when_no_record_of_its_transaction_is_left() -> None:
    async def test(_world: World, store: LogStore, log: Log) -> None:
        log.append_as_leader(keyed(("a", "1"), producer=5, sequence=0, transactional=True), 0)
        log.append_as_leader(marker(5, committed=True), 0, from_client=False)
        log.append_as_leader(keyed(("a", "2"), producer=6, sequence=0, transactional=True), 0)
        log.append_as_leader(marker(6, committed=False), 0, from_client=False)
        log.append_as_leader(keyed(("a", "3")), 0)
        await compact(store, log)
        assert values(log) == {"a": "3"}
        assert len(log.aborted_transactions(0, log.end_offset)) == 1
        # The aborted records are gone, and the last batch of an active producer is empty.
        kinds = [
            (header.producer_id, header.is_control, header.record_count)
            for header, _batch in all_batches(log)
        ]
        assert kinds == [(5, False, 0), (5, True, 1), (6, False, 0), (6, True, 1), (-1, False, 1)]
        log.producers.expire(2**62, 1)
        for _run in range(3):
            log.append_as_leader(keyed(("a", "4")), 0)
            await compact(store, log)
            await asyncio.sleep(2)
        assert not any(header.has_producer for header, _batch in all_batches(log))
        assert log.aborted_transactions(0, log.end_offset) == []

    with_log(test)


def test_nothing_at_or_after_the_last_stable_offset_is_compacted() -> None:
    async def test(_world: World, store: LogStore, log: Log) -> None:
        write(log, 100, 2)
        log.append_as_leader(keyed(("k0", "open"), producer=5, sequence=0, transactional=True), 0)
        write(log, 100, 2)
        await compact(store, log)
        offsets = [record.offset for record in records(log)]
        assert stable_offset(log) == 100
        held = next(
            segment.base_offset for segment in reversed(log.segments) if segment.base_offset <= 100
        )
        assert [offset for offset in offsets if offset >= held] == list(range(held, 201))
        assert len([offset for offset in offsets if offset < held]) == 2

    with_log(test)


def test_unsynced_records_are_not_compacted() -> None:
    async def test(_world: World, store: LogStore, log: Log) -> None:
        write(log, 100, 2)
        assert not await store.compactions.run_once({PARTITION: log.end_offset}, Pace())
        await log.flushing.all()
        assert await store.compactions.run_once({PARTITION: log.end_offset}, Pace())

    with_log(test)


def test_compaction_lags_and_the_dirty_ratio_decide_when_a_log_is_due() -> None:
    async def test(_world: World, _store: LogStore, log: Log) -> None:
        write(log, 100, 2)
        await log.flushing.all()

        def due(now_ms: int, clean_offset: int = 0, **changes: Any) -> tuple[bool, int]:
            config = dataclasses.replace(COMPACTED, **changes)
            found = cleanable(log.segments, config, clean_offset, log.end_offset, now_ms)
            return found.is_due(config), found.end_offset

        now = log.segments[0].largest_time()
        active = log.active.base_offset
        assert due(now) == (True, active)
        assert due(now + 10, min_compaction_lag_ms=100) == (False, 0)
        assert due(now + 101, min_compaction_lag_ms=100) == (True, active)
        half = log.segments[len(log.segments) // 2].base_offset
        assert due(now, half, min_cleanable_dirty_ratio=0.7) == (False, active)
        assert due(now + 101, half, min_cleanable_dirty_ratio=0.7, max_compaction_lag_ms=100) == (
            True,
            active,
        )
        assert due(now, active) == (False, active)

    with_log(test)


def test_a_small_dedupe_buffer_takes_several_runs() -> None:
    async def test(_world: World, store: LogStore, log: Log) -> None:
        write(log, 400, 40)
        newest = records(log)[-40:]
        runs = await compact(store, log, Pace(map_bytes=10 * 210))
        assert runs > 3
        assert records(log) == newest

    with_log(test)


def test_compaction_is_throttled() -> None:
    async def test(world: World, store: LogStore, log: Log) -> None:
        for number in range(60):
            log.append_as_leader(keyed((f"k{number % 3}", "x" * 100_000)), 0)
        size, started = log.size, world.clock.monotonic()
        await compact(store, log, Pace(max_bytes_per_second=100_000))
        assert world.clock.monotonic() - started > 2 * size / 100_000 * 0.7

    with_log(test, dataclasses.replace(COMPACTED, segment_bytes=300_000))


def test_the_cleaner_checkpoint_forgets_a_partition_that_is_created_again() -> None:
    async def test(world: World, store: LogStore, log: Log) -> None:
        write(log, 100, 2)
        await compact(store, log)
        checkpoint = f"/data/{names.CLEAN_OFFSETS}"
        assert world.disk.read(checkpoint) == b"0\n1\norders 0 100\n"
        again = await open_store(world, "/data", COMPACTED)
        assert again.logs[PARTITION].clean_offset == 100
        again.delete(PARTITION)
        with pytest.raises(StillListed):
            again.create(PARTITION, TOPIC_ID, COMPACTED)
        await again.offsets.forget_deleted({})
        again.create(PARTITION, TOPIC_ID, COMPACTED)
        assert parse_offsets(world.disk.read(checkpoint)) == {}

    with_log(test)


def test_the_cleaner_checkpoint_is_lowered_before_a_truncation() -> None:
    async def test(world: World, store: LogStore, log: Log) -> None:
        write(log, 100, 2)
        await compact(store, log)
        await store.truncate({PARTITION: 40})
        assert log.clean_offset == 40
        assert parse_offsets(world.disk.read(f"/data/{names.CLEAN_OFFSETS}")) == {PARTITION: 40}
        write(log, 100, 2)
        await compact(store, log)
        assert len(records(log)) == 2

    with_log(test)


async def _truncate(store: LogStore, log: Log) -> None:
    await store.truncate({PARTITION: log.end_offset - 5})


async def _delete(store: LogStore, _log: Log) -> None:
    store.delete(PARTITION)


async def _recreate(store: LogStore, _log: Log) -> None:
    store.delete(PARTITION)
    await store.offsets.forget_deleted({})
    write(store.create(PARTITION, TOPIC_ID, COMPACTED), 100, 5)


async def _retire(store: LogStore, log: Log) -> None:
    log.advance_start(log.segments[2].base_offset)
    await store.expiry.apply({PARTITION: log.end_offset})


async def _change_policy(_store: LogStore, log: Log) -> None:
    log.config = dataclasses.replace(COMPACTED, cleanup_policy=("delete",))


@pytest.mark.parametrize("change", [_truncate, _delete, _recreate, _retire, _change_policy])
@pytest.mark.parametrize("moment_s", [0.0, 0.2, 0.5, 0.9])
def test_a_log_that_changes_during_its_compaction_is_not_swapped(
    change: Callable[[LogStore, Log], Coroutine[Any, Any, None]], moment_s: float
) -> None:
    async def test(world: World, store: LogStore, log: Log) -> None:
        write(log, 200, 5)
        await log.flushing.all()
        running = asyncio.ensure_future(
            store.compactions.run_once({PARTITION: log.end_offset}, Pace())
        )
        await asyncio.sleep(moment_s)
        await change(store, log)
        before = records(store.logs[PARTITION]) if PARTITION in store.logs else []
        await running
        after = store.logs.get(PARTITION)
        if after is not None:
            assert {record.key: record.value for record in records(after)} == {
                record.key: record.value for record in before
            }
            assert not [
                name for name in world.disk.list(after.path) if name.endswith(names.CLEANED)
            ]
            await store.offsets.save_recovery_points()
            again = (await open_store(world, "/data", after.config)).logs[PARTITION]
            assert records(again) == records(after)
        assert all(directory.failure is None for directory in store.directories)
        assert store.compactions.uncleanable == {}

    with_log(test)


def test_a_damaged_segment_is_not_compacted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World, store: LogStore, log: Log) -> None:
        write(log, 100, 2)
        await log.flushing.all()
        world.disk.open(log.segments[1].path).pwrite(b"\xff", 100)
        before = [segment.size for segment in log.segments]
        assert not await store.compactions.run_once({PARTITION: log.end_offset}, Pace())
        assert "checksum" in store.compactions.uncleanable[PARTITION]
        assert "cannot compact" in caplog.text
        assert [segment.size for segment in log.segments] == before

    with_log(test)


def test_a_partition_created_again_is_compacted_although_the_deleted_one_was_damaged() -> None:
    async def test(world: World, store: LogStore, log: Log) -> None:
        write(log, 100, 2)
        await log.flushing.all()
        world.disk.open(log.segments[1].path).pwrite(b"\xff", 100)
        assert not await store.compactions.run_once({PARTITION: log.end_offset}, Pace())
        store.delete(PARTITION)
        assert store.compactions.uncleanable == {}
        await store.offsets.forget_deleted({})
        log = store.create(PARTITION, UUID(int=77), log.config)
        write(log, 100, 2)
        await log.flushing.all()
        assert await store.compactions.run_once({PARTITION: log.end_offset}, Pace())

    with_log(test)


def test_compaction_is_retried_after_a_full_disk() -> None:
    async def test(world: World, store: LogStore, log: Log) -> None:
        write(log, 100, 2)
        await log.flushing.all()
        before = records(log)
        drive = world.disk._drive  # type: ignore[attr-defined]  # the simulated one
        fault = drive.fail("/data/orders-0", ["pwrite"], 28)
        assert not await store.compactions.run_once({PARTITION: log.end_offset}, Pace())
        assert records(log) == before
        assert store.online
        drive.heal()
        assert fault is not None
        assert await store.compactions.run_once({PARTITION: log.end_offset}, Pace())

    with_log(test)


def test_records_without_a_key_are_removed() -> None:
    async def test(_world: World, store: LogStore, log: Log) -> None:
        write(log, 50, 2)
        log.append_as_leader(batch("no key"), 0)
        await compact(store, log)
        assert {record.key for record in records(log)} == {b"k0", b"k1"}

    with_log(test)


def test_a_job_is_lost_with_its_child_process() -> None:
    job = Job("j", "/nowhere", (), 0, 0, 0, 0, 0, 0, 0)
    with pytest.raises(JobLost):
        advance(Simulation(1).node("n").world.disk, job.id)
    abandon(Simulation(1).node("n").world.disk, job.id)


def test_the_map_of_keys_stays_within_its_budget() -> None:
    """Measured memory, not the estimate."""
    budget, number = 4_000_000, 0
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        last = LastOffsets(budget)
        while not last.is_full:
            data = keyed(*((f"key-{number + index}", "v") for index in range(500)))
            header = read_header(data)
            last.add(header, open_batch(data, header), 0)
            number += 500
        del data
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(last.offsets) == number > 10_000
    assert taken <= budget * 1.1
