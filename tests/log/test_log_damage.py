"""Damage that is found while a log is in service: the log is marked, and other logs do not
notice."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.log.compaction.run import Pace
from penstock.log.store import LogStore
from penstock.records.batch import batches
from penstock.world import World
from tests.log.compacting import COMPACTED, keyed
from tests.log.making import (
    NOW_MS,
    PARTITION,
    SMALL,
    TOPIC_ID,
    batch,
    in_real_world,
    open_store,
    values,
)

OTHER = TopicPartition("orders", 1)
MAGIC_AT = 16
FAR = 10**15


async def damaged(world: World, path: str, config: LogConfig) -> LogStore:
    """Return the store of a restarted node: the last batch of the oldest segment of one log has a
    flipped bit."""
    store = await open_store(world, path, config)
    for partition in (PARTITION, OTHER):
        log = store.create(partition, TOPIC_ID, config)
        while len(log.segments) < 4:
            number = log.end_offset
            log.append_as_leader(keyed((f"key {number % 3}", "x"), timestamp=NOW_MS + number), 0)
    segment = store.logs[PARTITION].segments[0].path
    await store.close()
    data = world.disk.read(segment)
    [*_earlier, (position, _header)] = batches(data)
    world.disk.open(segment).pwrite(bytes([data[position + MAGIC_AT] ^ 1]), position + MAGIC_AT)
    return await open_store(world, path, config)


def test_retention_marks_a_damaged_log_and_continues_with_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(world: World, path: str) -> None:
        store = await damaged(world, path, replace(SMALL, retention_ms=1_000))
        hurt, other = store.logs[PARTITION], store.logs[OTHER]
        count = len(hurt.segments)
        assert await store.apply_retention({PARTITION: FAR, OTHER: FAR}) == count
        assert hurt.damage is not None
        assert len(hurt.segments) == count, "the last write of the damaged segment counts"
        assert (other.damage, other.size) == (None, 0)
        assert store.online == store.directories
        end_offset = hurt.end_offset
        hurt.append_as_leader(batch("after"), 0)
        assert values(hurt, end_offset) == ["after"]
        with pytest.raises(KafkaError) as refused:
            hurt.read(hurt.segments[1].base_offset - 1, 1, below=hurt.end_offset)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    with caplog.at_level(logging.ERROR):
        in_real_world(tmp_path, main)
    assert caplog.text.count(f"{PARTITION} is damaged: ") == 1


def test_a_damaged_segment_expires_by_its_last_write(tmp_path: Path) -> None:
    """Otherwise the segments after it would stay for ever and fill the disk."""

    async def main(world: World, path: str) -> None:
        store = await damaged(world, path, replace(SMALL, retention_ms=1_000))
        os.utime(store.logs[PARTITION].segments[0].path, (1, 1))
        assert await store.apply_retention({PARTITION: FAR}) >= 4
        assert store.logs[PARTITION].size == 0

    in_real_world(tmp_path, main)


def test_retention_outlives_a_damaged_active_segment(tmp_path: Path) -> None:
    """The segment is rolled if it is expired, which needs its largest timestamp."""

    async def main(world: World, path: str) -> None:
        config = replace(SMALL, retention_ms=1_000)
        store = await open_store(world, path, config)
        log = store.create(PARTITION, TOPIC_ID, config)
        for number in range(10):
            log.append_as_leader(batch("x", timestamp=NOW_MS - number), 0)
        await store.close()
        world.disk.open(log.active.path).pwrite(b"\x03", MAGIC_AT)
        store = await open_store(world, path, config)
        os.utime(log.active.path, (1, 1))
        assert await store.apply_retention({PARTITION: FAR}) == 0
        assert store.logs[PARTITION].damage is not None
        assert store.online == store.directories

    in_real_world(tmp_path, main)


@pytest.mark.parametrize(
    "config",
    [
        replace(COMPACTED, min_compaction_lag_ms=1),
        replace(COMPACTED, max_compaction_lag_ms=1),
        COMPACTED,
    ],
)
def test_compaction_marks_a_damaged_log_and_compacts_the_others(
    tmp_path: Path, config: LogConfig
) -> None:
    async def main(world: World, path: str) -> None:
        store = await damaged(world, path, config)
        stable = {partition: log.end_offset for partition, log in store.logs.items()}
        for _ in range(2):
            await store.compactions.run_once(stable, Pace())
        assert store.logs[PARTITION].damage is not None
        assert PARTITION not in {log.partition for log in store.logs.values() if log.clean_offset}
        assert store.logs[OTHER].damage is None
        assert store.logs[OTHER].clean_offset
        assert store.online == store.directories
        before = store.logs[PARTITION].size
        assert not await store.compactions.run_once(stable, Pace())
        assert store.logs[PARTITION].size == before

    in_real_world(tmp_path, main)
