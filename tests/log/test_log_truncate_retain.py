from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.log.lookup import offset_for_timestamp, offset_of_max_timestamp
from penstock.log.names import DELETED
from penstock.log.retention import SegmentFacts, expired
from penstock.log.saved_offsets import StillListed
from penstock.records.compression import Codec
from penstock.world import World
from tests.log.making import (
    NOW_MS,
    PARTITION,
    SMALL,
    TOPIC_ID,
    batch,
    in_real_world,
    new_log,
    open_store,
    sequenced,
    values,
)


@pytest.mark.parametrize("offset", [0, 1, 55, 99, 100])
def test_a_truncated_log_continues_at_the_truncation_point(tmp_path: Path, offset: int) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        for number in range(100):
            log.append_as_leader(sequenced(1, number, str(number)), number // 10)
        await log.flushing.all()
        log.truncate_to(offset)
        assert log.end_offset == offset
        assert log.flushing.recovery_point <= offset
        assert values(log) == [str(number) for number in range(offset)]
        assert all(entry.start_offset < max(offset, 1) for entry in log.epochs.entries)
        log.append_as_leader(sequenced(1, offset, "new"), 20)
        assert values(log)[-1] == "new"
        recovered = (await open_store(world, path)).logs[PARTITION]
        assert values(recovered) == [*(str(number) for number in range(offset)), "new"]

    in_real_world(tmp_path, main)


def test_truncation_within_a_batch_removes_the_whole_batch(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        log.append_as_leader(batch("a", "b"), 0)
        log.append_as_leader(batch("c", "d", "e"), 0)
        log.truncate_to(3)
        assert log.end_offset == 2
        assert values(log) == ["a", "b"]

    in_real_world(tmp_path, main)


def test_truncation_lowers_the_saved_recovery_point_first(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        for number in range(100):
            log.append_as_leader(batch(str(number)), 0)
        await log.flushing.all()
        await store.offsets.save_recovery_points()
        await store.truncate({PARTITION: 30})
        recovered = await open_store(world, path)
        assert not recovered.damaged
        assert recovered.logs[PARTITION].end_offset == 30

    in_real_world(tmp_path, main)


def test_a_log_restarts_at_an_offset(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        for number in range(100):
            log.append_as_leader(batch(str(number)), 0)
        log.restart_at(500)
        assert (log.start_offset, log.end_offset, len(log.segments)) == (500, 500, 1)
        log.append_as_leader(batch("x"), 3)
        assert values(log) == ["x"]
        assert log.epochs.entries == [(3, 500)]

    in_real_world(tmp_path, main)


def test_deleted_records_are_not_served_and_their_segments_are_removed(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(
            PARTITION, TOPIC_ID, replace(SMALL, retention_ms=-1, file_delete_delay_ms=0)
        )
        for number in range(100):
            log.append_as_leader(batch(str(number)), 0)
        before = len(log.segments)
        log.advance_start(50)
        with pytest.raises(KafkaError) as refused:
            log.read(49, 1, below=100)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert values(log)[0] == "50"
        gone = await store.expiry.apply({PARTITION: 100})
        assert 0 < gone == before - len(log.segments)
        assert log.start_offset == 50
        assert log.segments[0].base_offset <= 50
        assert any(name.endswith(DELETED) for name in world.disk.list(log.path))
        await store.remove_due_files()
        assert not any(name.endswith(DELETED) for name in world.disk.list(log.path))
        await store.offsets.save_start_offsets()
        assert (await open_store(world, path)).logs[PARTITION].start_offset == 50
        with pytest.raises(KafkaError):
            log.advance_start(101)

    in_real_world(tmp_path, main)


def facts(*rows: tuple[int, int, int]) -> list[SegmentFacts]:
    return [SegmentFacts(end, size, lambda time=time: time) for end, size, time in rows]  # type: ignore[misc]  # mypy cannot infer it


SEGMENTS = facts((10, 100, 1_000), (20, 100, 2_000), (30, 50, 3_000))


@pytest.mark.parametrize(
    ("config", "start", "high_watermark", "now", "gone"),
    [
        (LogConfig(retention_ms=-1), 0, 30, 10**6, 0),
        (LogConfig(retention_ms=1_000), 0, 30, 2_000, 0),
        (LogConfig(retention_ms=1_000), 0, 30, 2_001, 1),
        (LogConfig(retention_ms=1_000), 0, 30, 3_001, 2),
        (LogConfig(retention_ms=1_000), 0, 30, 10**6, 3),
        (LogConfig(retention_ms=1_000), 0, 15, 10**6, 1),
        (LogConfig(retention_ms=1_000, cleanup_policy=("compact",)), 0, 30, 10**6, 0),
        (LogConfig(retention_ms=-1, retention_bytes=250), 0, 30, 0, 0),
        (LogConfig(retention_ms=-1, retention_bytes=151), 0, 30, 0, 0),
        (LogConfig(retention_ms=-1, retention_bytes=150), 0, 30, 0, 1),
        (LogConfig(retention_ms=-1, retention_bytes=0), 0, 30, 0, 2),
        (LogConfig(retention_ms=-1), 10, 30, 0, 1),
        (LogConfig(retention_ms=-1), 30, 30, 0, 2),
        (LogConfig(retention_ms=-1, cleanup_policy=("compact",)), 25, 30, 0, 2),
    ],
)
def test_retention(config: LogConfig, start: int, high_watermark: int, now: int, gone: int) -> None:
    assert expired(SEGMENTS, config, start, high_watermark, now) == gone


def test_a_log_whose_segments_all_expired_is_empty_and_keeps_its_end(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, replace(SMALL, retention_ms=1_000))
        for number in range(100):
            log.append_as_leader(batch(str(number)), 0)
        assert await store.expiry.apply({PARTITION: 100}) > 2
        assert (log.start_offset, log.end_offset, log.size) == (100, 100, 0)
        assert await store.expiry.apply({PARTITION: 100}) == 0

    in_real_world(tmp_path, main)


@pytest.mark.parametrize("codec", list(Codec))
def test_offsets_are_found_by_timestamp(tmp_path: Path, codec: Codec) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        for number in range(60):
            log.append_as_leader(batch("a", "b", timestamp=NOW_MS + 10 * number, codec=codec), 4)
        for timestamp, offset in [
            (0, 0),
            (NOW_MS, 0),
            (NOW_MS + 1, 1),
            (NOW_MS + 2, 2),
            (NOW_MS + 300, 60),
            (NOW_MS + 591, 119),
        ]:
            found = await offset_for_timestamp(log, world, timestamp)
            assert found is not None
            assert (found.offset, found.leader_epoch) == (offset, 4)
            assert found.timestamp >= timestamp
        assert await offset_for_timestamp(log, world, NOW_MS + 592) is None
        assert await offset_of_max_timestamp(log, world) == (NOW_MS + 591, 119, 4)

    in_real_world(tmp_path, main)


def test_the_largest_timestamp_is_found_when_timestamps_go_back(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        for time in [5, 900, 20, 900, 3]:
            log.append_as_leader(batch("x", timestamp=NOW_MS + time), 0)
        found = await offset_of_max_timestamp(log, world)
        assert found is not None
        assert found.offset == 1
        first = await offset_for_timestamp(log, world, NOW_MS + 10)
        assert first is not None
        assert first.offset == 1

    in_real_world(tmp_path, main)


def test_a_deleted_partition_is_removed_after_its_delay_and_its_name_can_be_reused(
    tmp_path: Path,
) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        config = replace(SMALL, file_delete_delay_ms=10)
        store.create(PARTITION, TOPIC_ID, config).append_as_leader(batch("a"), 0)
        store.delete(PARTITION)
        assert [name for name in world.disk.list(path) if name.endswith("-delete")]
        await store.offsets.forget_deleted({})
        again = store.create(PARTITION, TOPIC_ID, config)
        assert again.end_offset == 0
        await store.remove_due_files()
        await asyncio.sleep(0.011)
        await store.remove_due_files()
        assert not [name for name in world.disk.list(path) if name.endswith("-delete")]

    in_real_world(tmp_path, main)


def test_a_partition_created_again_does_not_inherit_its_offsets(tmp_path: Path) -> None:
    """Neither high watermark nor log start offset, also if the store was opened in between."""

    async def main(world: World, path: str) -> None:
        for reopened in (False, True):
            store = await open_store(world, path)
            log = store.create(PARTITION, TOPIC_ID, SMALL)
            log.append_as_leader(batch("a"), 0)
            log.append_as_leader(batch("b"), 0)
            log.advance_start(1)
            await store.offsets.save_start_offsets()
            await store.offsets.save_high_watermarks({PARTITION: 2})
            store.delete(PARTITION)
            if reopened:
                store = await open_store(world, path)
            with pytest.raises(StillListed):
                store.create(PARTITION, TOPIC_ID, SMALL)
            await store.offsets.forget_deleted({})
            store.create(PARTITION, TOPIC_ID, SMALL).append_as_leader(batch("new"), 0)
            crashed = await open_store(world, path)
            assert crashed.offsets.read_high_watermarks() == {}
            assert crashed.logs[PARTITION].start_offset == 0
            crashed.delete(PARTITION)
            await crashed.offsets.forget_deleted({})

    in_real_world(tmp_path, main)


def test_a_partition_created_again_does_not_inherit_its_recovery_point(
    tmp_path: Path,
) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        for number in range(50):
            log.append_as_leader(batch(str(number)), 0)
        await log.flushing.all()
        await store.offsets.save_recovery_points()
        store.delete(PARTITION)
        await store.offsets.forget_deleted({})
        store.create(PARTITION, TOPIC_ID, SMALL).append_as_leader(batch("new"), 0)
        crashed = await open_store(world, path)
        assert crashed.damaged == {}
        assert values(crashed.logs[PARTITION]) == ["new"]

    in_real_world(tmp_path, main)
