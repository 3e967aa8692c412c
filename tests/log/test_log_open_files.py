"""Too many open files: operations are refused or repeated, and the disk is not taken for broken."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.log.directory import LogDirectory, TooManyFiles
from penstock.log.lookup import offset_for_timestamp
from penstock.log.store import LogStore
from penstock.world import Disk, File, World
from penstock.world.sim import Simulation
from tests.log.making import (
    NOW_MS,
    PARTITION,
    SMALL,
    TOPIC_ID,
    batch,
    marker,
    open_store,
    records,
    sequenced,
)

CONFIG = replace(SMALL, segment_bytes=400, file_delete_delay_ms=0, retention_ms=-1)

# More than the calls that fail: the directory is offline.
MAX_REFUSALS = 100


class CountedDisk:
    """Every call that needs a descriptor is counted, and fails at given numbers."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.count = 0
        self.failing: range = range(0)
        self.number = errno.EMFILE

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def _need_descriptor(self, path: str) -> None:
        self.count += 1
        if self.count in self.failing:
            raise OSError(self.number, "too many open files", path)

    def open(self, path: str, *, create: bool = False) -> File:
        self._need_descriptor(path)
        return self._disk.open(path, create=create)

    def read(self, path: str) -> bytes:
        self._need_descriptor(path)
        return self._disk.read(path)

    def list(self, path: str) -> list[str]:
        self._need_descriptor(path)
        return self._disk.list(path)

    def sync_dir(self, path: str) -> None:
        self._need_descriptor(path)
        self._disk.sync_dir(path)

    def replace(self, path: str, data: bytes) -> None:
        self._need_descriptor(path)
        self._disk.replace(path, data)

    def remove_tree(self, path: str) -> None:
        self._need_descriptor(path)
        self._disk.remove_tree(path)


async def persistent(step: Callable[[], Awaitable[object]], refusals: list[KafkaError]) -> None:
    """Repeat a step as a client or the follower does until it is not refused."""
    while True:
        try:
            await step()
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            refusals.append(error)
            if len(refusals) > MAX_REFUSALS:
                raise
            await asyncio.sleep(1)
        else:
            return


async def work(world: World, store: LogStore, refusals: list[KafkaError]) -> None:
    """Do everything that a log does. The result does not depend on refusals."""

    async def create() -> None:
        store.create(PARTITION, TOPIC_ID, CONFIG)

    await persistent(create, refusals)
    log = store.logs[PARTITION]
    values = [f"{number} of a producer" for number in range(12)]
    for number, value in enumerate(values):

        async def append(number: int = number, value: str = value) -> None:
            log.append_as_leader(sequenced(1, number, value), number // 5)

        await persistent(append, refusals)
    await persistent(log.flushing.all, refusals)
    await persistent(lambda: store.truncate({PARTITION: 7}), refusals)

    async def append_transaction() -> None:
        if log.end_offset == 7:
            log.append_as_leader(sequenced(2, 0, "aborted", transactional=True), 3)
        log.append_as_leader(marker(2, committed=False), 3, from_client=False)

    await persistent(append_transaction, refusals)

    async def append_as_follower() -> None:
        fetched = bytearray(b"".join(batch(f"fetched {n}") for n in range(3)))
        position = 0
        for offset in range(log.end_offset, log.end_offset + 3):
            fetched[position : position + 8] = offset.to_bytes(8, "big")
            position += len(batch("fetched 0"))
        log.append_as_follower(fetched)

    await persistent(append_as_follower, refusals)
    await persistent(store.flush_due, refusals)
    await persistent(lambda: offset_for_timestamp(log, world, NOW_MS), refusals)

    async def delete_records() -> None:
        log.advance_start(3)
        await store.expiry.apply({PARTITION: log.end_offset})

    await persistent(delete_records, refusals)
    await persistent(store.offsets.save_recovery_points, refusals)
    await persistent(store.offsets.save_start_offsets, refusals)
    await persistent(store.remove_due_files, refusals)
    assert log.damage is None
    await persistent(store.close, refusals)


def run_with(failing: range, number: int) -> tuple[list[object], int, int]:
    """Return the records after a restart, the number of calls that need a descriptor, and the
    number of refusals."""
    simulation = Simulation(3)
    node = simulation.node("n1")

    async def main() -> tuple[list[object], int, int]:
        world = replace(node.world, disk=(disk := CountedDisk(node.world.disk)))
        store = await open_store(world, "/d", CONFIG)
        disk.count, disk.failing, disk.number = 0, failing, number
        refusals: list[KafkaError] = []
        await work(world, store, refusals)
        assert store.online == store.directories
        count = disk.count
        disk.failing = range(0)
        again = await open_store(node.world, "/d", CONFIG)
        assert again.damaged == {}
        log = again.logs[PARTITION]
        state = [
            *((record.offset, record.value) for record in records(log)),
            log.start_offset,
            log.end_offset,
            log.epochs.entries,
            sorted(
                (number, producer.last_sequence)
                for number, producer in log.producers.producers.items()
            ),
            [tuple(txn) for txn in log.aborted_transactions(0, log.end_offset)],
        ]
        return state, count, len(refusals)

    return simulation.run(node.run(main()))


def test_each_operation_that_needs_a_descriptor_may_fail_without_any_harm() -> None:
    expected, count, refused = run_with(range(0), errno.EMFILE)
    assert refused == 0
    assert count >= 50
    for first in range(1, count):
        for failures in (1, 2, 3):
            state, _count, refused = run_with(range(first, first + failures), errno.EMFILE)
            assert state == expected, f"from call {first} on {failures} calls failed"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_not_taken_for_a_broken_disk(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        state, _count, refused = run_with(range(1, 30), number)
    assert state == run_with(range(0), number)[0]
    assert refused > 0
    assert "Raise the limit of open" in caplog.text
    assert "offline" not in caplog.text


def test_a_log_that_is_deleted_before_its_files_are_complete_leaves_no_directory() -> None:
    simulation = Simulation(3)
    node = simulation.node("n1")

    async def main() -> None:
        world = replace(node.world, disk=(disk := CountedDisk(node.world.disk)))
        store = await open_store(world, "/d", CONFIG)
        log = store.create(PARTITION, TOPIC_ID, CONFIG)
        disk.count, disk.failing = 0, range(1, 100)
        with pytest.raises(TooManyFiles):
            log.append_as_leader(batch("refused"), 0)
        assert (log.is_on_disk, world.disk.is_dir(log.path)) == (False, True)
        store.delete(PARTITION)
        disk.failing = range(0)
        await store.remove_due_files()
        assert not [name for name in world.disk.list("/d") if name.startswith(str(PARTITION))]

    simulation.run(node.run(main()))


def test_a_move_that_is_refused_does_not_begin_at_the_next_start() -> None:
    simulation = Simulation(3)
    node = simulation.node("n1")

    async def main() -> None:
        world = replace(node.world, disk=(disk := CountedDisk(node.world.disk)))
        for path in ("/a", "/b"):
            world.disk.make_dirs(path)
        a, b = LogDirectory("/a", UUID(int=1)), LogDirectory("/b", UUID(int=2))
        store = LogStore(world, [a, b])
        await store.open(lambda _partition: CONFIG)
        store.create(PARTITION, TOPIC_ID, CONFIG, a).append_as_leader(batch("here"), 0)
        for first in itertools.count(1):
            disk.count, disk.failing = 0, range(first, first + 100)
            try:
                assert store.moves.begin(PARTITION, b) is not None
            except TooManyFiles:
                disk.failing = range(0)
                await store.remove_due_files()
                assert not [name for name in world.disk.list("/b") if "-future" in name]
            else:
                break
        assert first > 1

    simulation.run(node.run(main()))


def test_a_store_does_not_open_in_part() -> None:
    """A log that is not opened would be created again, in place of its records."""
    simulation = Simulation(3)
    node = simulation.node("n1")

    async def main() -> None:
        store = await open_store(node.world, "/d", CONFIG)
        store.create(PARTITION, TOPIC_ID, CONFIG).append_as_leader(batch("kept"), 0)
        await store.close()
        world = replace(node.world, disk=(disk := CountedDisk(node.world.disk)))
        for first in itertools.count(1):
            disk.count, disk.failing = 0, range(first, first + 100)
            try:
                again = await open_store(world, "/d", CONFIG)
            except TooManyFiles:
                continue
            break
        assert disk.count == first - 1 > 5, "each call that failed has stopped the start"
        disk.failing = range(0)
        assert [record.value for record in records(again.logs[PARTITION])] == [b"kept"]

    simulation.run(node.run(main()))
