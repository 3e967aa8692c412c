"""Sequential reads: ranges end between batches, and remembered positions never outlive a change of
the log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import REMEMBERED_READ_ENDS
from penstock.log.log import Log
from penstock.records.batch import BatchHeader, batches
from penstock.records.record import read_records
from penstock.world import World
from tests.log.compacting import COMPACTED, compact, keyed
from tests.log.making import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    batch,
    in_real_world,
    new_log,
    open_store,
    values,
)

LARGE = replace(SMALL, segment_bytes=1_000_000)


def fetches(log: Log, max_bytes: int, offset: int = 0) -> Iterator[list[BatchHeader]]:
    """Yield the batches of each read of a sequential reader; every range has whole batches only."""
    while (part := log.read(offset, max_bytes, below=log.end_offset)) is not None:
        headers = [header for _position, header in batches(part.read())]
        assert sum(header.size for header in headers) == len(part)
        yield headers
        offset = headers[-1].next_offset


@pytest.mark.parametrize("segment_bytes", [2_000, 1_000_000])
@pytest.mark.parametrize("index_interval_bytes", [0, 100, 4_096])
def test_a_read_returns_the_whole_batches_that_fit(
    tmp_path: Path, index_interval_bytes: int, segment_bytes: int
) -> None:
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
    rng = random.Random(index_interval_bytes)

    async def main(world: World, path: str) -> None:
        log = await new_log(world, path, config)
        for number in range(100):
            log.append_as_leader(batch(f"{number}".ljust(rng.randrange(1, 400))), 0)
        all_headers = [header for headers in fetches(log, 10**9) for header in headers]
        assert [header.base_offset for header in all_headers] == list(range(100))
        for max_bytes in (1, 200, 500, 777, 1_500):
            read = list(fetches(log, max_bytes))
            assert [header for headers in read for header in headers] == all_headers
            for headers in read:
                size = sum(header.size for header in headers)
                assert size <= max_bytes or len(headers) == 1, "the first batch may be larger"
                following = headers[-1].next_offset
                starts_segment = any(segment.base_offset == following for segment in log.segments)
                if following < 100 and not starts_segment:
                    assert size + all_headers[following].size > max_bytes, "one more would fit"

    in_real_world(tmp_path, main)


def test_a_sequential_reader_finds_its_next_batch_without_reading(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path, LARGE)
        for number in range(100):
            log.append_as_leader(batch(f"{number}".ljust(100)), 0)
        for headers in list(fetches(log, 1_000))[:-1]:
            following = headers[-1].next_offset
            remembered = (log.active._remembered._read_ends or {}).get(following)
            assert remembered is None or remembered == log.active._scan_for(following, 0)
        assert log.active._remembered._read_ends
        assert len(log.active._remembered._read_ends) <= REMEMBERED_READ_ENDS

    in_real_world(tmp_path, main)


def test_a_truncated_segment_remembers_no_positions(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path, LARGE)
        for number in range(100):
            log.append_as_leader(batch(f"{number}".ljust(100)), 0)
        assert len(list(fetches(log, 1_000))) > 5
        log.truncate_to(30)
        for number in range(30, 100):
            log.append_as_leader(batch(f"new {number}".ljust(37)), 1)
        for offset in range(100):
            part = log.read(offset, 1, below=100)
            assert part is not None
            [record] = read_records(part.read())
            text = f"{offset}" if offset < 30 else f"new {offset}"
            assert (record.offset, (record.value or b"").decode().strip()) == (offset, text)

    in_real_world(tmp_path, main)


def test_deleted_segments_and_records_are_not_read_by_remembered_positions(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        for number in range(200):
            log.append_as_leader(batch(str(number)), 0)
        before = list(fetches(log, 500))
        log.retire(3)
        assert 0 < log.start_offset < 200
        for headers in before:
            offset = headers[0].base_offset
            if offset >= log.start_offset:
                assert next(fetches(log, 500, offset)) == headers
                continue
            with pytest.raises(KafkaError) as refused:
                log.read(offset, 500, below=200)
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    in_real_world(tmp_path, main)


def test_a_compacted_segment_is_not_read_at_positions_of_the_old_one(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path, COMPACTED)
        log = store.create(PARTITION, TOPIC_ID, COMPACTED)
        for number in range(60):
            log.append_as_leader(keyed((f"key {number % 7}", f"value {number}")), 0)
        before = [header.base_offset for headers in fetches(log, 250) for header in headers]
        assert before == list(range(60))
        await compact(store, log)
        kept = [header.base_offset for headers in fetches(log, 10**9) for header in headers]
        assert len(kept) < 60, "records were removed"
        for max_bytes in (1, 250, 1_000):
            read = [header.base_offset for headers in fetches(log, max_bytes) for header in headers]
            assert read == kept
        assert values(log)[-1] == "value 59"

    in_real_world(tmp_path, main)


def test_an_index_that_points_between_batches_costs_only_the_cut(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path, LARGE)
        for number in range(50):
            log.append_as_leader(batch(f"{number}".ljust(100)), 0)
        index = log.active.offset_index
        entries = index._entries()
        width = index.entry.size
        for at in range(0, len(entries), width):
            relative, position = index.entry.unpack_from(entries, at)
            index.entry.pack_into(entries, at, relative, position + 1)
        part = log.read(0, 1_000, below=50)
        assert part is not None
        assert len(part) == 1_000
        assert [header.base_offset for _position, header in batches(part.read())][:3] == [0, 1, 2]

    in_real_world(tmp_path, main)
