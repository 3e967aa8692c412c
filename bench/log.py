"""Measure the log: appends against raw pwrite, lookups in a large log, recovery after an unclean
shutdown."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from bench.results import Section, median, spread
from penstock.config.topic import LogConfig
from penstock.ids import TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.log.lookup import offset_for_timestamp
from penstock.log.store import LogStore
from penstock.records.build import build_batch
from penstock.world import World
from penstock.world.real import run

MB = 1024 * 1024
ROUNDS = 7
APPENDED = 256 * MB
LARGE = 10 * 1024 * MB
PARTITION = TopicPartition("bench", 0)
STARTED_MS = 1_700_000_000_000


def main() -> None:
    section = Section(
        "log",
        "make bench ONLY=log",
        "Appends and lookups through `Log`, as a broker calls it, with files in the temporary "
        "directory.",
    )
    section.table("measurement", "Penstock", "raw pwrite", "ratio", "target")
    for size, name, target in ((MB, "1-MB", "80 %"), (16 * 1024, "16-KB", "50 %")):
        ours, raw = _append_rounds(size)
        share = median([a / b for a, b in zip(ours, raw, strict=True)])
        section.row(
            f"append of {name} batches, MB/s", spread(ours), spread(raw), f"{share:.0%}", target
        )
    section.table("measurement", "p50", "p99")
    _in_directory(lambda path: run(lambda world: _lookups(world, path, section)))
    section.table("measurement", "seconds")
    for size, name in ((16 * 1024, "16-KB"), (MB, "1-MB")):
        seconds = [_in_directory(partial(_recovery, size=size)) for _ in range(3)]
        section.row(
            f"recovery of 1 GB after an unclean shutdown in {name} batches (child process "
            "included)",
            spread(seconds, 2),
        )
    section.save()


T = TypeVar("T")


def _in_directory(call: Callable[[Path], T]) -> T:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as path:
        return call(Path(path))


def _batch(size: int, timestamp: int = STARTED_MS) -> bytearray:
    """Return a batch of about this size, with 1-KB records."""
    count = max(size // 1024, 1)
    return bytearray(
        build_batch([(None, random.randbytes(1000), (), timestamp + n) for n in range(count)])
    )


async def _new_log(world: World, path: Path, config: LogConfig) -> tuple[LogStore, Log]:
    store = LogStore(world, [LogDirectory(str(path), UUID(int=1_000))])
    await store.open(lambda _partition: config)
    return store, store.create(PARTITION, UUID(int=1_001), config)


def _append_rounds(size: int) -> tuple[list[float], list[float]]:
    """Return the MB/s of the log and of a plain file; the first round is a warm-up."""
    rounds = [
        _in_directory(lambda path: run(lambda world: _append(world, path, size)))
        for _ in range(ROUNDS + 1)
    ]
    return [ours for ours, _raw in rounds[1:]], [raw for _ours, raw in rounds[1:]]


async def _append(world: World, path: Path, size: int) -> tuple[float, float]:
    """Append batches alternately to the log and to a plain file, so that both pay the same: the
    cost of a new page of the page cache may vary tenfold within a second."""
    os.sync()
    _store, log = await _new_log(world, path, LogConfig(max_message_bytes=2 * MB))
    batch = _batch(size)
    view, count = memoryview(batch), APPENDED // len(batch)
    file = os.open(path / "raw", os.O_RDWR | os.O_CREAT)
    ours = raw = 0.0
    for number in range(count):
        view[:8] = bytes(8)
        started = time.perf_counter()
        log.append_as_leader(view, 0)
        between = time.perf_counter()
        os.pwrite(file, batch, number * len(batch))
        ours += between - started
        raw += time.perf_counter() - between
    os.close(file)
    return count * len(batch) / MB / ours, count * len(batch) / MB / raw


async def _lookups(world: World, path: Path, section: Section) -> None:
    store, log = await _new_log(world, path, LogConfig(max_message_bytes=2 * MB))
    records, number = 16, 0
    while log.size < LARGE:
        log.append_as_leader(_same_batch(records, STARTED_MS + number * records), 0)
        number += 1
        if number % 20_000 == 0:
            await log.flushing.all()
            print(f"  {log.size / LARGE:.0%} of 10 GB written", flush=True)
    await store.close()
    rng = random.Random(7)
    offsets = [rng.randrange(log.end_offset) for _ in range(20_000)]
    section.row(
        "lookup by offset in 10 GB of 16-KB batches, µs",
        *_timed(lambda offset: log.read(offset, 1, below=log.end_offset), offsets),
    )
    times = []
    for offset in offsets[:2_000]:
        started = time.perf_counter()
        found = await offset_for_timestamp(log, world, STARTED_MS + offset)
        times.append((time.perf_counter() - started) * 1e6)
        if found is None or found.offset != offset:
            raise SystemExit(f"the lookup of {offset} found {found}: the benchmark is wrong")
    section.row("lookup by timestamp in the same log, in threads, µs", *_percentiles(times))


_PAYLOAD = [random.randbytes(1000) for _ in range(16)]


def _same_batch(records: int, timestamp: int) -> bytes:
    return build_batch([(None, _PAYLOAD[n], (), timestamp + n) for n in range(records)])


def _timed(call: Callable[[int], object], arguments: list[int]) -> tuple[str, str]:
    times = []
    for argument in arguments:
        started = time.perf_counter()
        result = call(argument)
        times.append((time.perf_counter() - started) * 1e6)
        if result is None:
            raise SystemExit(f"the lookup of {argument} found nothing: the benchmark is wrong")
    return _percentiles(times)


def _percentiles(times: list[float]) -> tuple[str, str]:
    times.sort()
    return f"{times[len(times) // 2]:.1f}", f"{times[len(times) * 99 // 100]:.1f}"


def _recovery(path: Path, *, size: int) -> float:
    config = LogConfig(max_message_bytes=2 * MB, segment_bytes=2 * 1024 * MB - 1)

    async def write(world: World) -> None:
        _store, log = await _new_log(world, path, config)
        batch = _batch(size)
        while log.size < 1024 * MB:
            batch[:8] = bytes(8)
            log.append_as_leader(batch, 0)

    async def recover(world: World) -> float:
        started = time.perf_counter()
        store = LogStore(world, [LogDirectory(str(path), UUID(int=1_000))])
        await store.open(lambda _partition: config)
        if store.logs[PARTITION].size < 1024 * MB:
            raise SystemExit("recovery lost records: the benchmark is wrong")
        return time.perf_counter() - started

    run(write)
    # This process still holds the writer's lock.
    (path / ".lock").unlink()
    return run(recover)
