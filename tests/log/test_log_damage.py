"""Damage that is found while a log is in service: the log is marked, and other logs do not
notice."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.log.compaction.run import Pace
from penstock.log.scanning import BatchPosition, scan_headers
from penstock.log.store import LogStore
from penstock.records.batch import batches
from penstock.records.record import read_records
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
LENGTH_AT = 8
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
        assert await store.expiry.apply({PARTITION: FAR, OTHER: FAR}) == count
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
    """Otherwise the segments after it would stay forever and fill the disk."""

    async def main(world: World, path: str) -> None:
        store = await damaged(world, path, replace(SMALL, retention_ms=1_000))
        os.utime(store.logs[PARTITION].segments[0].path, (1, 1))
        assert await store.expiry.apply({PARTITION: FAR}) >= 4
        assert store.logs[PARTITION].size == 0

    in_real_world(tmp_path, main)


@pytest.mark.parametrize("at", [LENGTH_AT, MAGIC_AT])
@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_read_of_a_damaged_batch_does_not_scan_its_segment_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, is_indexed: bool
) -> None:
    """Otherwise one flipped bit of a large segment holds the event loop for seconds, with every
    fetch of a client that tries again."""
    scanned = count_scanned(monkeypatch)

    async def main(world: World, path: str) -> None:
        config = replace(SMALL, segment_bytes=100_000, index_interval_bytes=500)
        store = await open_store(world, path, config)
        log = store.create(PARTITION, TOPIC_ID, config)
        while len(log.segments) == 1:
            log.append_as_leader(batch("value"), 0)
        segment = log.segments[0]
        index = segment.offset_index
        entry = index[len(index) - 3]
        hurt = entry.offset if is_indexed else entry.offset + 1
        found = segment.find(hurt)
        assert found is not None
        world.disk.open(segment.path).pwrite(b"\x7f", found[0] + at)
        for offset in (hurt, hurt + 1):
            scanned.clear()
            with pytest.raises(KafkaError, match="segment damaged"):
                log.read(offset, 1, below=log.end_offset)
            assert len(scanned) < 20
        for offset in (hurt - 1, index[len(index) - 1].offset):
            assert log.read(offset, 1, below=log.end_offset) is not None

    in_real_world(tmp_path, main)


def test_a_wrong_entry_of_an_index_costs_a_short_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned = count_scanned(monkeypatch)

    async def main(world: World, path: str) -> None:
        config = replace(SMALL, segment_bytes=100_000, index_interval_bytes=500)
        store = await open_store(world, path, config)
        log = store.create(PARTITION, TOPIC_ID, config)
        while len(log.segments) == 1:
            log.append_as_leader(batch("value"), 0)
        index = log.segments[0].offset_index
        number = len(index) - 3
        offset = index[number].offset
        await store.close()
        position_at = number * index.entry.size + 4
        world.disk.open(index.path).pwrite((77_777).to_bytes(4, "big"), position_at)
        log = (await open_store(world, path, config)).logs[PARTITION]
        scanned.clear()
        part = log.read(offset, 1, below=offset + 1)
        assert part is not None
        assert [record.offset for record in read_records(part.read())] == [offset]
        assert len(scanned) < 20

    in_real_world(tmp_path, main)


def count_scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the position of every batch header that a segment scans."""
    positions: list[int] = []

    def scan(*arguments: Any) -> Iterator[BatchPosition]:
        for position, header in scan_headers(*arguments):
            positions.append(position)
            yield position, header

    monkeypatch.setattr("penstock.log.segment.scan_headers", scan)
    return positions


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
        assert await store.expiry.apply({PARTITION: FAR}) == 0
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


def test_a_read_of_a_damaged_batch_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Consumers retry KAFKA_STORAGE_ERROR: without the line nobody would know why they wait."""

    async def main(world: World, path: str) -> None:
        store = await damaged(world, path, SMALL)
        log = store.logs[PARTITION]
        for _ in range(2):
            with pytest.raises(KafkaError):
                log.read(log.segments[1].base_offset - 1, 1, below=log.end_offset)
        assert log.read(log.segments[1].base_offset, 1, below=log.end_offset) is not None
        assert (log.damage is None, store.logs[OTHER].damage) == (False, None)

    with caplog.at_level(logging.ERROR):
        in_real_world(tmp_path, main)
    assert caplog.text.count(f"{PARTITION} is damaged: ") == 1
    assert "remove the directory" in caplog.text
