"""A truncation rebuilds the producer state in steps, and the log is consistent at each of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.config.topic import LogConfig
from penstock.limits import REPLAYED_PER_STEP
from penstock.log.log import Log
from penstock.log.producers.replay import load_producers
from penstock.log.producers.snapshot import encode_snapshot
from penstock.log.producers.state import ProducerStates
from penstock.log.store import LogStore
from penstock.records.batch import BatchHeader
from penstock.world import World
from tests.log.making import (
    PARTITION,
    TOPIC_ID,
    batch,
    in_real_world,
    marker,
    open_store,
    sequenced,
    values,
)

BATCHES = 5_000
PRODUCERS = 700


async def written(world: World, path: str) -> tuple[LogStore, Log]:
    """Return a log whose active segment has many batches of many producers, some of them in a
    transaction."""
    store = await open_store(world, path, LogConfig())
    log = store.create(PARTITION, TOPIC_ID, LogConfig())
    for number in range(BATCHES):
        producer = number % PRODUCERS
        log.append_as_leader(
            sequenced(producer, number // PRODUCERS, "x", transactional=producer % 50 == 0), 0
        )
        if number % PRODUCERS == PRODUCERS - 1:
            aborted = marker(producer - 49, committed=False)
            log.append_as_leader(aborted, 0, from_client=False)
    return store, log


def test_a_truncation_replays_a_bounded_number_of_batches_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied, most, last = 0, 0, 0
    apply = ProducerStates.apply

    def counted(states: ProducerStates, header: BatchHeader, *marker: object) -> object:
        nonlocal applied
        applied += 1
        return apply(states, header, *marker)  # type: ignore[arg-type]

    async def watch() -> None:
        nonlocal most, last
        while True:
            most, last = max(most, applied - last), applied
            await asyncio.sleep(0)

    async def main(world: World, path: str) -> None:
        store, log = await written(world, path)
        monkeypatch.setattr(ProducerStates, "apply", counted)
        watcher = asyncio.create_task(watch())
        await store.truncate({PARTITION: log.end_offset - 1})
        watcher.cancel()
        assert applied >= BATCHES
        assert 0 < most <= 2 * REPLAYED_PER_STEP

    in_real_world(tmp_path, main)


def test_a_truncation_in_steps_leads_to_the_state_of_a_replay_at_once(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store, log = await written(world, path)
        for offset in (log.end_offset - 1, BATCHES // 2, 3, 0):
            await store.truncate({PARTITION: offset})
            assert log.end_offset == offset
            replayed = load_producers(world.disk, log.path, log.segments, offset, [])
            assert encode_snapshot(log.producers.producers) == encode_snapshot(replayed.producers)
            assert log.producers.end_offset == replayed.end_offset == offset
            assert log.producers.first_unstable_offset() == replayed.first_unstable_offset()
            assert world.disk.size(log.active.path) == log.size
        log.append_as_leader(sequenced(1, 0, "first again"), 1)

    in_real_world(tmp_path, main)


def test_a_log_without_producers_is_truncated_without_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path, LogConfig())
        log = store.create(PARTITION, TOPIC_ID, LogConfig())
        for number in range(20):
            log.append_as_leader(batch(str(number)), 0)
        monkeypatch.delattr("penstock.log.truncation.load_steps")
        await store.truncate({PARTITION: 7})
        assert values(log) == [str(number) for number in range(7)]
        assert not log.producers.producers
        assert log.producers.end_offset == 7

    in_real_world(tmp_path, main)


def test_the_log_and_its_producers_change_together(tmp_path: Path) -> None:
    """While the producer state is read, a reader sees the old log with the old state."""

    async def main(world: World, path: str) -> None:
        store, log = await written(world, path)
        end_offset, producers = log.end_offset, log.producers
        seen = set()

        async def watch() -> None:
            while True:
                seen.add((log.end_offset, log.producers is producers))
                await asyncio.sleep(0)

        watcher = asyncio.create_task(watch())
        await store.truncate({PARTITION: 100})
        watcher.cancel()
        assert seen == {(end_offset, True), (100, False)}

    in_real_world(tmp_path, main)


def test_a_partition_may_be_deleted_while_its_producers_are_read(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store, log = await written(world, path)
        truncating = asyncio.create_task(store.truncate({PARTITION: log.end_offset - 1}))
        for _ in range(5):
            await asyncio.sleep(0)
        store.delete(PARTITION)
        await truncating
        assert store.online == store.directories

    in_real_world(tmp_path, main)
