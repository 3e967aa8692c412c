"""Logs and batches for the tests of this package."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from penstock.config.topic import LogConfig
from penstock.ids import TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.log.store import LogStore
from penstock.records.batch import batches
from penstock.records.build import build_batch, end_transaction_marker
from penstock.records.compression import Codec
from penstock.records.record import Record, read_records
from penstock.world import World
from penstock.world.real import run

T = TypeVar("T")

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=4711)
SMALL = LogConfig(segment_bytes=2_000, index_interval_bytes=100)
NOW_MS = 1_700_000_000_000


def batch(*values: str, timestamp: int = NOW_MS, codec: Codec = Codec.NONE) -> bytes:
    return build_batch(
        [(None, value.encode(), (), timestamp + n) for n, value in enumerate(values)], codec=codec
    )


def sequenced(
    producer_id: int, sequence: int, *values: str, epoch: int = 0, transactional: bool = False
) -> bytes:
    return build_batch(
        [(None, value.encode(), (), NOW_MS) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(
    producer_id: int, *, committed: bool, epoch: int = 0, coordinator_epoch: int = 0
) -> bytes:
    return end_transaction_marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        commit=committed,
        coordinator_epoch=coordinator_epoch,
        timestamp=NOW_MS,
    )


async def open_store(world: World, path: str, config: LogConfig = SMALL, **kwargs: Any) -> LogStore:
    """Open a store without locking its directories: a test that opens what another store has open
    is the process after a crash."""
    world.disk.make_dirs(path)
    if world.disk.exists(f"{path}/.lock"):
        world.disk.remove(f"{path}/.lock")
    store = LogStore(world, [LogDirectory(path, UUID(int=99))], **kwargs)
    await store.open(lambda _partition: config)
    return store


async def new_log(world: World, path: str, config: LogConfig = SMALL) -> Log:
    store = await open_store(world, path, config)
    return store.create(PARTITION, TOPIC_ID, config)


def in_real_world(path: Path, main: Callable[[World, str], Coroutine[Any, Any, T]]) -> T:
    return run(lambda world: main(world, str(path / "data")))


def records(log: Log, offset: int | None = None) -> list[Record]:
    """Return every record from an offset on, read as a client does, with checksums checked."""
    offset = log.start_offset if offset is None else offset
    found: list[Record] = []
    while (part := log.read(offset, 1_000_000, below=log.end_offset)) is not None:
        data = part.read()
        found += [record for record in read_records(data) if record.offset >= offset]
        offset = [header for _position, header in batches(data)][-1].next_offset
    return found


def values(log: Log, offset: int | None = None) -> list[str]:
    return [(record.value or b"").decode() for record in records(log, offset)]
