"""Lookups by time and by offset: what they find, and how little of the disk they read."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.log.files import OpenFiles
from penstock.log.index import BLOCK_ENTRIES, NotAtHand, OffsetIndex, OffsetPosition
from penstock.log.log import Log
from penstock.log.lookup import offset_for_timestamp, offset_of_max_timestamp
from penstock.records.build import build_batch
from penstock.world import World
from penstock.world.real import RealDisk, RealFile
from tests.log.making import NOW_MS, PARTITION, SMALL, TOPIC_ID, batch, in_real_world, open_store

SEGMENTS = 50
ENTRIES = 3 * BLOCK_ENTRIES
CONFIG = LogConfig(segment_bytes=ENTRIES * 75, index_interval_bytes=0)


class SpiedDisk(RealDisk):
    """Counts the bytes that each thread reads, and may block for."""

    __slots__ = ("read_by",)

    def __init__(self) -> None:
        self.read_by: dict[int, int] = {}

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        pread = file.pread

        def counted(length: int, position: int) -> bytes:
            return self._count(pread(length, position))

        file.pread = counted
        return file

    def read(self, path: str) -> bytes:
        return self._count(super().read(path))

    def _count(self, data: bytes) -> bytes:
        thread = threading.get_ident()
        self.read_by[thread] = self.read_by.get(thread, 0) + len(data)
        return data


async def written(world: World, path: str) -> Log:
    """Return a log of many segments after a clean restart. Timestamps increase by 2."""
    store = await open_store(world, path, CONFIG)
    log = store.create(PARTITION, TOPIC_ID, CONFIG)
    while len(log.segments) <= SEGMENTS:
        log.append_as_leader(batch("", timestamp=NOW_MS + 2 * log.end_offset), 0)
    await store.close()
    return (await open_store(world, path, CONFIG)).logs[PARTITION]


def test_a_lookup_by_time_reads_some_blocks_of_each_index_and_in_threads_only(
    tmp_path: Path,
) -> None:
    async def main(world: World, path: str) -> None:
        world = replace(world, disk=(disk := SpiedDisk()))
        log = await written(world, path)
        index_bytes = sum(
            segment.offset_index.size + segment.time_index.size for segment in log.segments[:-1]
        )
        for offset in (0, 1, ENTRIES, log.end_offset // 2, log.end_offset - 1):
            disk.read_by.clear()
            found = await offset_for_timestamp(log, world, NOW_MS + 2 * offset - 1)
            assert found == (NOW_MS + 2 * offset, offset, 0)
            assert disk.read_by.pop(threading.get_ident(), 0) == 0, "the event loop blocked"
            assert 0 < sum(disk.read_by.values()) < index_bytes / 2
        assert await offset_for_timestamp(log, world, NOW_MS + 2 * log.end_offset) is None

    in_real_world(tmp_path, main)


def test_the_largest_timestamp_is_found_in_threads(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        world = replace(world, disk=(disk := SpiedDisk()))
        log = await written(world, path)
        disk.read_by.clear()
        last = log.end_offset - 1
        assert await offset_of_max_timestamp(log, world) == (NOW_MS + 2 * last, last, 0)
        assert threading.get_ident() not in disk.read_by

    in_real_world(tmp_path, main)


def test_a_lookup_in_a_sealed_index_equals_one_in_memory(tmp_path: Path) -> None:
    rng = random.Random(3)
    files = OpenFiles(RealDisk())
    active = OffsetIndex(files, str(tmp_path / "index"), 100, active=True)
    entries, offset, position = [], 100, 0
    for _ in range(ENTRIES + 7):
        offset += rng.randrange(1, 5)
        position += rng.randrange(1, 100)
        entries.append(OffsetPosition(offset, position))
        active.append(offset, position)
    active.save()
    sealed = OffsetIndex(files, active.path, 100, active=False)
    assert len(sealed) == len(entries)
    for number in (0, BLOCK_ENTRIES - 1, BLOCK_ENTRIES, len(entries) - 1):
        assert sealed[number] == entries[number]
    edges = [entry.offset + shift for entry in entries for shift in (-1, 0, 1)]
    for wanted in (0, 99, *edges, offset + 1_000):
        assert sealed.lookup(wanted) == active.lookup(wanted)
    for wanted in range(0, position + 100, 50):
        assert sealed.at_position(wanted) == active.at_position(wanted)


def test_a_lookup_that_must_not_block_does_not_open_an_index(tmp_path: Path) -> None:
    written = OffsetIndex(OpenFiles(RealDisk()), str(tmp_path / "index"), 0, active=True)
    for number in range(2 * BLOCK_ENTRIES):
        written.append(number + 1, number * 100)
    written.save()
    index = OffsetIndex(OpenFiles(RealDisk()), written.path, 0, active=False)
    lookups: list[Callable[[], object]] = [
        lambda: index.lookup(700, at_once=True),
        lambda: index.at_position(700, at_once=True),
    ]
    for lookup in lookups:
        with pytest.raises(NotAtHand):
            lookup()
    assert index.lookup(700) == 69_900
    assert index.lookup(700, at_once=True) == 69_900, "the blocks are cached"


@pytest.mark.parametrize("times", [[1_000, 1, 1, 1], [1_000, 1_000, 1, 1], [1, 1, 1, 1_000]])
def test_records_before_the_log_start_are_not_found_by_time(
    tmp_path: Path, times: list[int]
) -> None:
    """DeleteRecords may move the log start into the middle of a batch."""

    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        log.append_as_leader(build_batch([(None, b"x", (), NOW_MS + time) for time in times]), 0)
        log.append_as_leader(batch("next batch", timestamp=NOW_MS + 1_000), 0)
        log.roll()
        log.append_as_leader(batch("next segment", timestamp=NOW_MS + 2_000), 0)
        expected = [NOW_MS + time for time in (*times, 1_000, 2_000)]
        for start in range(log.end_offset):
            log.advance_start(start)
            for wanted in (500, 1_500):
                found = await offset_for_timestamp(log, world, NOW_MS + wanted)
                assert found is not None
                assert found.offset == next(
                    offset
                    for offset, time in enumerate(expected)
                    if offset >= start and time >= NOW_MS + wanted
                )
        assert await offset_for_timestamp(log, world, NOW_MS + 2_001) is None

    in_real_world(tmp_path, main)


def test_a_wrong_index_does_not_change_what_is_found(tmp_path: Path) -> None:
    """Indexes have no checksum. A damaged one costs a scan of the segment."""

    async def main(world: World, path: str) -> None:
        config = replace(SMALL, index_interval_bytes=200)
        store = await open_store(world, path, config)
        log = store.create(PARTITION, TOPIC_ID, config)
        while len(log.segments) < 3:
            log.append_as_leader(batch("x", timestamp=NOW_MS + 2 * log.end_offset), 0)
        end_offset, indexes = log.end_offset, log.segments[1].paths[1:3]
        await store.close()
        for name in indexes:
            right = world.disk.read(name)
            for position in range(0, len(right), 3):
                wrong = bytearray(right)
                wrong[position] ^= 1 << position % 8
                world.disk.replace(name, bytes(wrong))
                log = (await open_store(world, path, config)).logs[PARTITION]
                for offset in range(0, end_offset, 5):
                    found = await offset_for_timestamp(log, world, NOW_MS + 2 * offset - 1)
                    assert found is not None
                    assert found.offset == offset
            world.disk.replace(name, right)

    in_real_world(tmp_path, main)


def test_a_lookup_by_time_in_a_damaged_segment_is_refused(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        while len(log.segments) < 3:
            log.append_as_leader(batch("x", timestamp=NOW_MS + log.end_offset), 0)
        segment = log.segments[0]
        await store.close()
        world.disk.open(segment.path).pwrite(b"\xff" * segment.size, 0)
        log = (await open_store(world, path)).logs[PARTITION]
        with pytest.raises(KafkaError) as refused:
            await offset_for_timestamp(log, world, NOW_MS)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.damage is not None

    in_real_world(tmp_path, main)
