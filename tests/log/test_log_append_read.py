from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config.topic import LogConfig, TimestampType
from penstock.errors import ErrorCode, KafkaError, NotInMemory
from penstock.limits import REMEMBERED_TAIL_BATCHES
from penstock.log.files import OpenFiles
from penstock.log.segment import Segment
from penstock.records.batch import batches, crc_matches
from penstock.records.record import read_records
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
    records,
    values,
)


def test_offsets_are_dense_and_records_are_read_back(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        assert log.append_as_leader(batch("a", "b"), 0)[:2] == (0, 2)
        assert log.append_as_leader(batch("c"), 0)[:2] == (2, 3)
        assert [(record.offset, record.value) for record in records(log)] == [
            (0, b"a"),
            (1, b"b"),
            (2, b"c"),
        ]

    in_real_world(tmp_path, main)


def test_a_writable_buffer_is_patched_in_place_and_not_copied(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        log.append_as_leader(batch("a"), 0)
        buffer = bytearray(batch("b"))
        log.append_as_leader(memoryview(buffer), 7)
        [(_position, header)] = batches(buffer)
        assert (header.base_offset, header.leader_epoch) == (1, 7)
        assert log.epochs.entries == [(0, 0), (7, 1)]

    in_real_world(tmp_path, main)


def test_segments_roll_by_size_and_every_offset_is_found(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        for number in range(200):
            log.append_as_leader(batch(f"{number}:x", f"{number}:y"), 0)
        assert len(log.segments) > 5
        assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
        for offset in range(400):
            part = log.read(offset, 1, below=400)
            assert part is not None
            [(_position, header)] = batches(part.read())
            assert header.base_offset <= offset <= header.last_offset

    in_real_world(tmp_path, main)


def test_a_read_that_may_not_block_is_warmed_first(tmp_path: Path) -> None:
    """The kernel decides which pages stay in the page cache. Whether an index is open is known."""

    async def main(world: World, path: str) -> None:
        written = await new_log(world, path)
        for number in range(200):
            written.append_as_leader(batch(f"{number}:x", f"{number}:y"), 0)
        log = (await open_store(world, path)).logs[PARTITION]
        warmed = 0
        for offset in range(400):
            try:
                part = log.read(offset, 1, below=400, at_once=True)
            except NotInMemory as missing:
                missing.warm()
                warmed += 1
                part = log.read(offset, 1, below=400)
            assert part is not None
            [(_position, header)] = batches(part.read())
            assert header.base_offset <= offset <= header.last_offset
        assert warmed >= len(log.segments) - 1

    in_real_world(tmp_path, main)


def test_remembered_batches_match_the_file(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path, replace(SMALL, segment_bytes=1_000_000))
        for number in range(REMEMBERED_TAIL_BATCHES * 3):
            log.append_as_leader(batch(*(str(number) for _ in range(number % 3 + 1))), 0)
        remembering = [log.active.find(offset) for offset in range(log.end_offset + 1)]
        reopened = Segment(
            OpenFiles(world.disk), log.path, 0, active=True, created_ms=0, size=log.active.size
        )
        assert [reopened.find(offset) for offset in range(log.end_offset + 1)] == remembering
        assert remembering[-1] is None

    in_real_world(tmp_path, main)


def test_truncated_batches_are_not_remembered(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        for number in range(4):
            log.append_as_leader(batch(str(number)), 0)
        log.truncate_to(2)
        log.append_as_leader(batch("new", "newer"), 1)
        assert [record.value for record in records(log)] == [b"0", b"1", b"new", b"newer"]
        assert log.active.find(4) is None

    in_real_world(tmp_path, main)


def test_a_read_from_within_a_batch_returns_the_whole_batch(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        log.append_as_leader(batch("a", "b", "c"), 0)
        part = log.read(2, 1, below=3)
        assert part is not None
        assert [record.value for record in read_records(part.read())] == [b"a", b"b", b"c"]

    in_real_world(tmp_path, main)


def test_nothing_at_or_above_the_bound_is_returned(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        for number in range(100):
            log.append_as_leader(batch(str(number)), 0)
        for bound in range(100):
            for offset in range(0, 101, 7):
                part = log.read(offset, 1_000_000, below=bound)
                if part is None:
                    assert offset >= bound
                else:
                    assert [header.last_offset for _p, header in batches(part.read())][-1] < bound

    in_real_world(tmp_path, main)


def test_max_bytes_bounds_all_but_the_first_batch(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path, LogConfig())
        size = len(batch("0" * 1000))
        for _ in range(10):
            log.append_as_leader(batch("0" * 1000), 0)
        for max_bytes, expected in [
            (1, size),
            (size, size),
            (3 * size, 3 * size),
            (3 * size + 5, 3 * size),
            (10**9, 10 * size),
        ]:
            part = log.read(0, max_bytes, below=10)
            assert part is not None
            assert len(part) == expected
        assert log.read(0, size - 1, below=10, at_least_one=False) is None
        assert log.read(0, size, below=10, at_least_one=False) is not None

    in_real_world(tmp_path, main)


@pytest.mark.parametrize("offset", [-1, 3])
def test_offsets_outside_the_log_are_refused(tmp_path: Path, offset: int) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        log.append_as_leader(batch("a", "b"), 0)
        with pytest.raises(KafkaError) as refused:
            log.read(offset, 1, below=2)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.read(2, 1, below=2) is None

    in_real_world(tmp_path, main)


def test_log_append_time_is_stamped_and_the_crc_still_matches(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(
            world, path, replace(SMALL, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
        )
        before = world.clock.now_ms()
        appended = log.append_as_leader(batch("a", timestamp=5), 0)
        assert before <= appended.log_append_time_ms <= world.clock.now_ms()
        part = log.read(0, 1, below=1)
        assert part is not None
        data = part.read()
        [(_position, header)] = batches(data)
        assert header.log_append_time
        assert header.max_timestamp == appended.log_append_time_ms
        assert crc_matches(data, 0, header)

    in_real_world(tmp_path, main)


def test_timestamps_out_of_range_are_refused(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(
            world,
            path,
            replace(
                SMALL, message_timestamp_before_max_ms=1_000, message_timestamp_after_max_ms=1_000
            ),
        )
        now = world.clock.now_ms()
        log.append_as_leader(batch("now", timestamp=now), 0)
        log.append_as_leader(batch("no time", timestamp=-1), 0)
        for timestamp in (now - 100_000, now + 100_000):
            with pytest.raises(KafkaError) as refused:
                log.append_as_leader(batch("x", timestamp=timestamp), 0)
            assert refused.value.code == ErrorCode.INVALID_TIMESTAMP
        assert log.end_offset == 2

    in_real_world(tmp_path, main)


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        with pytest.raises(KafkaError) as refused:
            log.append_as_leader(batch("x" * SMALL.segment_bytes), 0)
        assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
        assert log.end_offset == 0

    in_real_world(tmp_path, main)


def test_segments_roll_by_time(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path, LogConfig(segment_ms=1_000))
        log.append_as_leader(batch("a", timestamp=NOW_MS), 0)
        log.append_as_leader(batch("b", timestamp=NOW_MS + 1_000), 0)
        assert len(log.segments) == 1
        log.append_as_leader(batch("c", timestamp=NOW_MS + 1_001), 0)
        assert [segment.base_offset for segment in log.segments] == [0, 2]

    in_real_world(tmp_path, main)


def test_segments_roll_when_an_index_is_full(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path, LogConfig(index_interval_bytes=1, segment_index_bytes=48))
        for number in range(40):
            log.append_as_leader(batch(str(number), timestamp=NOW_MS + number), 0)
        assert len(log.segments) > 5
        for segment in log.segments[:-1]:
            assert world.disk.size(segment.offset_index.path) <= 48
            assert world.disk.size(segment.time_index.path) <= 48
        assert values(log) == [str(number) for number in range(40)]

    in_real_world(tmp_path, main)


def test_a_follower_keeps_offsets_and_epochs_and_refuses_lower_offsets(
    tmp_path: Path,
) -> None:
    async def main(world: World, path: str) -> None:
        leader = await new_log(world, path + "1")
        follower = await new_log(world, path + "2")
        for number in range(50):
            leader.append_as_leader(batch(str(number)), number // 10)
        while follower.end_offset < leader.end_offset:
            part = leader.read(follower.end_offset, 500, below=leader.end_offset)
            assert part is not None
            data = part.read()
            whole = sum(header.size for _position, header in batches(data))
            follower.append_as_follower(data[:whole])
        assert values(follower) == values(leader)
        assert follower.epochs.entries == leader.epochs.entries
        part = leader.read(10, 1, below=50)
        assert part is not None
        with pytest.raises(KafkaError):
            follower.append_as_follower(part.read())
        assert follower.end_offset == 50

    in_real_world(tmp_path, main)


@pytest.mark.parametrize("flip", [0, 30, 65])
def test_a_corrupt_batch_is_refused_and_changes_nothing(tmp_path: Path, flip: int) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        log.append_as_leader(batch("a"), 0)
        bad = bytearray(batch("b"))
        bad[flip] ^= 0x10
        with pytest.raises(KafkaError):
            log.append_as_leader(bad, 0)
        log.append_as_leader(batch("c"), 0)
        assert values(log) == ["a", "c"]

    in_real_world(tmp_path, main)


def test_files_are_opened_lazily_under_a_budget(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:

        store = await open_store(world, path, open_files=4)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        for number in range(300):
            log.append_as_leader(batch(f"{number:050d}"), 0)
        held = log.read(0, 10_000, below=300)
        assert held is not None
        assert len(log.segments) > 10
        assert values(log) == [f"{number:050d}" for number in range(300)]
        assert len(store._files) <= 4
        assert next(read_records(held.read())).offset == 0, (
            "a range keeps its file open after the budget evicted it"
        )

    in_real_world(tmp_path, main)
