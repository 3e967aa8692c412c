"""Periodic work looks only at logs that something happened to: an idle log costs nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.log import names
from penstock.log.compaction.run import Compactions, Pace
from penstock.log.directory import LogDirectory, TooManyFiles
from penstock.log.due import DueTimes
from penstock.log.flush import Flush
from penstock.log.log import Log
from penstock.log.lookup import offset_for_timestamp, offset_of_max_timestamp
from penstock.log.producers.state import ProducerStates
from penstock.log.store import LogStore
from penstock.world import World
from penstock.world.sim import Simulation
from tests.log.compacting import COMPACTED, compact, keyed
from tests.log.making import PARTITION, SMALL, TOPIC_ID, batch, in_real_world, open_store, sequenced

IDLE = [TopicPartition("idle", number) for number in range(20)]
FAR = 1_000_000


class Visits:
    """Counts the calls of methods, by the method's name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *methods: tuple[type, str]) -> None:
        self.counts: Counter[str] = Counter()
        for owner, name in methods:
            monkeypatch.setattr(owner, name, self._counting(getattr(owner, name), name))

    def _counting(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.counts[name] += 1
            return method(*args, **kwargs)

        return counted

    def take(self) -> dict[str, int]:
        taken, self.counts = dict(self.counts), Counter()
        return taken


async def with_idle_logs(world: World, path: str, config: LogConfig = SMALL) -> LogStore:
    store = await open_store(world, path, config)
    for partition in IDLE:
        store.create(partition, TOPIC_ID, config)
    return store


def test_times_come_in_order_and_once_per_log() -> None:
    times, logs = DueTimes(), [object.__new__(Log) for _number in range(5)]
    for log, time in zip(logs, (50, 10, 30, 20, 40), strict=True):
        times.not_after(log, time)
    times.not_after(logs[0], 15)
    times.not_after(logs[1], 99)
    times.forget(logs[3])
    assert times.take(9) == []
    assert times.take(30) == [logs[1], logs[0], logs[2]]
    assert times.take(100) == [logs[4]]
    assert len(times) == 0
    for time in range(1_000, 0, -1):
        times.not_after(logs[0], time)
    assert len(times._heap) < 100, "outdated entries are dropped"
    assert times.take(1) == [logs[0]]


def test_idle_logs_are_not_visited_by_flushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits = Visits(monkeypatch, (Flush, "due"), (Flush, "to"))

    async def main(world: World, path: str) -> None:
        store = await with_idle_logs(world, path)
        log = store.logs[IDLE[0]]
        log.append_as_leader(batch("a"), 0)
        visits.take()
        await store.flush_due()
        assert visits.take() == {}, "without flush.ms an append makes no flush due"
        log.roll()
        visits.take()
        await store.flush_due()
        assert visits.take() == {"to": 1}, "a sealed segment is flushed, and nothing else"
        assert log.flushing.recovery_point == 1
        await store.flush_due()
        assert visits.take() == {}

    in_real_world(tmp_path, main)


def test_a_log_with_flush_ms_is_visited_when_its_time_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(1)
    node = simulation.node("n1")

    async def main() -> None:
        store = await with_idle_logs(node.world, "/d", LogConfig(flush_ms=1_000))
        log = store.logs[IDLE[3]]
        visits = Visits(monkeypatch, (Flush, "due"))
        for _round in range(3):
            log.append_as_leader(batch("a"), 0)
            visits.take()
            await store.flush_due()
            assert visits.take() == {}
            assert log.flushing.recovery_point < log.end_offset
            await asyncio.sleep(1.01)
            await store.flush_due()
            assert log.flushing.recovery_point == log.end_offset
        await asyncio.sleep(5)
        visits.take()
        await store.flush_due()
        assert visits.take() == {}, "nothing was appended since"

    simulation.run(node.run(main()))


def test_flush_ms_that_is_set_later_flushes_what_was_appended_before() -> None:
    simulation = Simulation(2)
    node = simulation.node("n1")

    async def main() -> None:
        store = await with_idle_logs(node.world, "/d")
        log = store.logs[IDLE[3]]
        log.append_as_leader(batch("a"), 0)
        await asyncio.sleep(2)
        await store.flush_due()
        assert log.flushing.recovery_point == 0
        log.config = replace(log.config, flush_ms=1_000)
        log.mark()
        await store.flush_due()
        assert log.flushing.recovery_point == 1

    simulation.run(node.run(main()))


def test_retention_visits_a_log_when_its_oldest_segment_may_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(3)
    node = simulation.node("n1")
    config = replace(SMALL, retention_ms=60_000)

    async def main() -> None:
        store = await with_idle_logs(node.world, "/d", config)
        visits = Visits(monkeypatch, (Log, "expired"))
        watermarks = dict.fromkeys(IDLE, FAR)
        await store.expiry.apply(watermarks)
        assert visits.take() == {}, "an empty log has nothing to delete"
        log = store.logs[IDLE[4]]
        log.append_as_leader(batch("a", timestamp=node.world.clock.now_ms()), 0)
        await store.expiry.apply(watermarks)
        assert visits.take() == {"expired": 1}, "its first record tells when it expires"
        await asyncio.sleep(30)
        await store.expiry.apply(watermarks)
        assert visits.take() == {}
        await asyncio.sleep(31)
        assert await store.expiry.apply(watermarks) == 1
        assert visits.take() == {"expired": 1}
        assert log.start_offset == 1

    simulation.run(node.run(main()))


def test_retention_keeps_visiting_a_log_that_is_not_replicated_yet() -> None:
    simulation = Simulation(4)
    node = simulation.node("n1")

    async def main() -> None:
        store = await with_idle_logs(node.world, "/d", replace(SMALL, retention_ms=1_000))
        log = store.logs[IDLE[4]]
        log.append_as_leader(batch("a", timestamp=node.world.clock.now_ms()), 0)
        await asyncio.sleep(5)
        assert await store.expiry.apply({log.partition: 0}) == 0
        assert await store.expiry.apply({}) == 0, "not a partition of this broker yet"
        assert await store.expiry.apply({log.partition: 1}) == 1

    simulation.run(node.run(main()))


@pytest.mark.parametrize("changed", ["retention.ms", "retention.bytes", "log start"])
def test_retention_visits_a_log_whose_settings_or_start_changed(changed: str) -> None:
    simulation = Simulation(5)
    node = simulation.node("n1")

    async def main() -> None:
        store = await with_idle_logs(node.world, "/d", replace(SMALL, retention_ms=10**9))
        log = store.logs[IDLE[4]]
        while len(log.segments) < 3:
            log.append_as_leader(batch("v" * 100, timestamp=node.world.clock.now_ms()), 0)
        watermarks = {log.partition: FAR}
        assert await store.expiry.apply(watermarks) == 0
        await asyncio.sleep(5)
        if changed == "log start":
            log.advance_start(log.active.base_offset)
        else:
            log.config = (
                replace(log.config, retention_ms=1_000)
                if changed == "retention.ms"
                else replace(log.config, retention_bytes=0)
            )
            log.mark()
        assert await store.expiry.apply(watermarks) >= 2

    simulation.run(node.run(main()))


def test_retention_by_size_also_counts_what_is_appended_to_the_active_segment() -> None:
    simulation = Simulation(6)
    node = simulation.node("n1")

    async def main() -> None:
        config = replace(SMALL, retention_ms=-1, retention_bytes=500)
        store = await with_idle_logs(node.world, "/d", config)
        log = store.logs[IDLE[4]]
        while len(log.segments) < 2:
            log.append_as_leader(batch("v" * 100), 0)
        watermarks = {log.partition: FAR}
        sealed = log.segments[0].size
        while log.size - config.retention_bytes < sealed and len(log.segments) == 2:
            assert await store.expiry.apply(watermarks) == 0
            log.append_as_leader(batch("v" * 100), 0)
        assert await store.expiry.apply(watermarks) == 1

    simulation.run(node.run(main()))


def test_a_log_that_is_clean_is_not_examined_for_compaction_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(7)
    node = simulation.node("n1")

    async def main() -> None:
        store = await with_idle_logs(node.world, "/d", COMPACTED)
        log = store.create(PARTITION, TOPIC_ID, COMPACTED)
        visits = Visits(monkeypatch, (Compactions, "cleanable"))
        for number in range(30):
            log.append_as_leader(keyed((f"k{number % 3}", "v")), 0)
        assert await compact(store, log) > 0
        assert visits.take()["cleanable"] > 0
        assert not await store.compactions.run_once({PARTITION: log.end_offset}, Pace())
        assert visits.take() == {}
        log.append_as_leader(keyed(("k1", "w")), 0)
        assert await compact(store, log) > 0, "a sealed segment marks the log again"

    simulation.run(node.run(main()))


def test_producers_expire_and_logs_without_producers_are_not_visited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(8)
    node = simulation.node("n1")

    async def main() -> None:
        store = await with_idle_logs(node.world, "/d")
        visits = Visits(monkeypatch, (ProducerStates, "expire"))
        log = store.logs[IDLE[7]]
        log.append_as_leader(sequenced(5, 0, "a"), 0)
        await store.expire_producers(10**15)
        assert visits.take() == {"expire": 1}
        assert 5 in log.producers.producers
        await store.expire_producers(0)
        assert not log.producers.producers
        visits.take()
        await store.expire_producers(0)
        assert visits.take() == {}
        log.append_as_leader(sequenced(5, 0, "a"), 0)
        log.append_as_leader(sequenced(5, 1, "b"), 0)
        await store.truncate({log.partition: 2})
        visits.take()
        await store.expire_producers(10**15)
        assert visits.take() == {"expire": 1}, "the state after a truncation is looked at too"
        store.delete(log.partition)
        await store.expire_producers(10**15)
        assert visits.take() == {}

    simulation.run(node.run(main()))


def test_checkpoints_are_not_written_while_nothing_changes(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await with_idle_logs(world, path)
        log = store.logs[IDLE[0]]
        log.append_as_leader(batch("a", "b"), 0)
        await log.flushing.all()
        log.advance_start(1)
        await store.offsets.save_changed()
        for name, offset in ((names.RECOVERY_POINTS, 2), (names.LOG_STARTS, 1)):
            file = f"{path}/{name}"
            assert store.checkpoints.read(path, name)[IDLE[0]] == offset
            world.disk.remove(file)
        await store.offsets.save_changed()
        assert not world.disk.exists(f"{path}/{names.RECOVERY_POINTS}")
        assert not world.disk.exists(f"{path}/{names.LOG_STARTS}")
        await store.truncate({IDLE[0]: 1})
        await store.offsets.save_changed()
        assert store.checkpoints.read(path, names.RECOVERY_POINTS)[IDLE[0]] == 0

    in_real_world(tmp_path, main)


def test_a_truncation_above_the_recovery_point_saves_no_checkpoint(tmp_path: Path) -> None:
    """Each would have a row for every log, and after a failover thousands may be truncated."""

    async def main(world: World, path: str) -> None:
        store = await with_idle_logs(world, path)
        log = store.logs[IDLE[0]]
        for value in "abc":
            log.append_as_leader(batch(value), 0)
        await store.truncate({IDLE[0]: 2})
        assert log.end_offset == 2
        assert not world.disk.exists(f"{path}/{names.RECOVERY_POINTS}")

    in_real_world(tmp_path, main)


def test_directories_know_how_many_logs_they_have(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        directories = [
            LogDirectory(f"{path}/{name}", UUID(int=number))
            for number, name in enumerate("ab", 200)
        ]
        for directory in directories:
            world.disk.make_dirs(directory.path)
        store = LogStore(world, directories)
        await store.open(lambda _partition: SMALL)
        for partition in IDLE:
            store.create(partition, TOPIC_ID, SMALL)
        assert [directory.log_count for directory in directories] == [10, 10]
        moved = next(log for log in store.logs.values() if log.directory is directories[0])
        move = store.moves.begin(moved.partition, directories[1])
        assert move is not None
        await store.moves.run(move)
        assert [directory.log_count for directory in directories] == [9, 11]
        for partition in IDLE[:15]:
            store.delete(partition)
        assert sum(directory.log_count for directory in directories) == 5
        for partition in IDLE[15:18]:
            store.logs[partition].append_as_leader(batch("a"), 0)
        await store.close()
        again = LogStore(world, [LogDirectory(d.path, d.id) for d in directories])
        await again.open(lambda _partition: SMALL)
        assert sum(directory.log_count for directory in again.directories) == 3

    in_real_world(tmp_path, main)


def test_a_log_without_records_has_no_files_and_no_buffers(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        store = await with_idle_logs(world, path)
        log = store.logs[IDLE[0]]
        segment = log.active
        indexes = (segment._offset_index, segment._time_index, segment._txn_index)
        assert indexes == (None, None, None)
        assert segment._remembered._tail is None
        assert log.read(0, 1_000, below=FAR) is None
        assert await offset_for_timestamp(log, world, 0) is None
        assert await offset_of_max_timestamp(log, world) is None
        assert log.batch_start(0) == 0
        await store.truncate(dict.fromkeys(IDLE, 0))
        await store.offsets.save_recovery_points()
        store.delete(IDLE[1])
        assert store.create(IDLE[1], TOPIC_ID, SMALL).end_offset == 0, "no checkpoint lists it"
        await store.restart(IDLE[2], 70)
        await store.close()
        assert [name for name in world.disk.list(path) if name.startswith("idle")] == ["idle-2"]
        again = await open_store(world, path)
        assert again.logs[IDLE[2]].end_offset == 70
        log = again.create(IDLE[0], TOPIC_ID, SMALL)
        log.append_as_leader(batch("a"), 0)
        await log.flushing.all()
        assert world.disk.exists(f"{path}/{IDLE[0]}/{names.PARTITION_METADATA}")
        await again.close()
        final = await open_store(world, path)
        assert (final.logs[IDLE[0]].end_offset, final.logs[IDLE[0]].topic_id) == (1, TOPIC_ID)

    in_real_world(tmp_path, main)


def test_log_is_looked_at_again_after_a_check_without_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(world: World, path: str) -> None:
        config = replace(SMALL, retention_ms=1_000)
        store = await open_store(world, path, config)
        log = store.create(PARTITION, TOPIC_ID, config)
        for _ in range(40):
            log.append_as_leader(batch("v" * 50), 0)
        ends = {PARTITION: log.end_offset}

        def refuse(_log: Log, _number: int) -> int:
            raise TooManyFiles(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(Log, "retire", refuse)
            assert await store.expiry.apply(ends) == 0
        assert await store.expiry.apply(ends) > 0
        await store.close()

    in_real_world(tmp_path, main)
