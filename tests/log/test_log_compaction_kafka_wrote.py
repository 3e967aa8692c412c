"""Logs of Apache Kafka, compacted by Penstock: transactions, markers, codecs, and segments that
Kafka had compacted."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config.topic import LogConfig
from penstock.log import names
from penstock.log.compaction.run import Pace
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.log.store import LogStore
from penstock.world import World
from penstock.world.real import RealClock, run
from tests.fixtures.kafka_wrote import DATA, Partition, partitions
from tests.log.compacting import all_batches, committed, compact, stable_offset
from tests.log.making import marker

CONFIG = LogConfig(
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.0,
    retention_ms=-1,
    delete_retention_ms=0,
    file_delete_delay_ms=0,
)
ALL = [partition for partition in partitions() if partition.log_end_offset]
# Kafka's cleaner gave the only tombstone, offset 25 of compacted-0, this delete horizon.
DELETE_HORIZON_MS = 1_794_868_346_515


class FixedClock(RealClock):
    """A wall clock that stands still, so that the tombstones of the fixture do not expire."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


def copy_of(wrote: Partition, tmp_path: Path) -> LogDirectory:
    shutil.copytree(wrote.directory, tmp_path / str(wrote.name))
    for name in (
        names.CLEAN_SHUTDOWN,
        names.RECOVERY_POINTS,
        names.LOG_STARTS,
        names.CLEAN_OFFSETS,
    ):
        shutil.copy(DATA / name, tmp_path)
    return LogDirectory(str(tmp_path), wrote.topic_id)


async def opened(
    world: World, directory: LogDirectory, now_ms: int = DELETE_HORIZON_MS - 1
) -> LogStore:
    fixed = replace(world, clock=FixedClock(now_ms))
    store = LogStore(fixed, [LogDirectory(directory.path, directory.id)])
    await store.open(lambda _partition: CONFIG)
    return store


@pytest.mark.parametrize("wrote", ALL, ids=[str(partition.name) for partition in ALL])
def test_the_last_committed_record_of_each_key_stays(wrote: Partition, tmp_path: Path) -> None:
    directory = copy_of(wrote, tmp_path)

    async def main(world: World) -> None:
        store = await opened(world, directory)
        log = store.logs[wrote.name]
        log.clean_offset = None
        end_transactions(log)
        kept = {record.key: record for record in committed(log) if record.key is not None}
        await compact(store, log)
        check(log, wrote, [record.offset for record in kept.values()])
        for log_directory in store.directories:
            log_directory.unlock()
        again = (await opened(world, directory)).logs[wrote.name]
        check(again, wrote, [record.offset for record in kept.values()])
        assert stable_offset(again) == stable_offset(log)

    run(main)


def test_a_tombstone_goes_after_the_delete_horizon_that_kafka_gave_it(tmp_path: Path) -> None:
    wrote = next(partition for partition in ALL if partition.name.topic == "compacted")
    directory = copy_of(wrote, tmp_path)

    async def main(world: World) -> None:
        store = await opened(world, directory, DELETE_HORIZON_MS + 1)
        log = store.logs[wrote.name]
        log.clean_offset = None
        kept = {record.key: record for record in committed(log) if record.value is not None}
        await compact(store, log)
        check(log, wrote, [record.offset for record in kept.values()])

    run(main)


def end_transactions(log: Log) -> None:
    """An open transaction holds compaction back."""
    for producer_id, producer in log.producers.producers.items():
        if producer.txn_first_offset is not None:
            ended = marker(
                producer_id,
                committed=True,
                epoch=producer.epoch,
                coordinator_epoch=producer.coordinator_epoch,
            )
            log.append_as_leader(ended, log.epochs.latest, from_client=False)


def check(log: Log, wrote: Partition, offsets: list[int]) -> None:
    """Compare the remaining records with what Kafka's consumer read."""
    found = committed(log)
    assert sorted(record.offset for record in found) == sorted(offsets)
    read = {read.record.offset: read.record for read in wrote.read()}
    assert all(read[record.offset] == record for record in found if record.offset in read)
    assert log.end_offset >= wrote.log_end_offset


def test_aborted_records_and_later_their_markers_are_removed(tmp_path: Path) -> None:
    wrote = next(partition for partition in ALL if partition.name.topic == "transactions")
    directory = copy_of(wrote, tmp_path)

    async def main(world: World) -> None:
        store = await opened(world, directory)
        log = store.logs[wrote.name]
        aborted = {txn.producer_id for txn in log.aborted_transactions(0, log.end_offset)}
        assert aborted
        seen = {read.record.offset for read in wrote.read() if read.read_committed}
        end_transactions(log)
        await compact(store, log)
        assert {
            record.offset for record in committed(log) if record.offset < wrote.last_stable_offset
        } <= seen
        # Again, without producers whose last batch must stay, and after the delete horizon of the
        # markers.
        log.producers.expire(2**62, 1)
        for _run in range(3):
            log.clean_offset = None
            log.mark()
            assert await store.compactions.run_once({wrote.name: stable_offset(log)}, Pace())
        *before, _last = [header for header, _batch in all_batches(log) if header.is_control]
        assert not [header for header in before if header.producer_id in aborted]
        assert log.aborted_transactions(0, log.end_offset) == []

    run(main)
