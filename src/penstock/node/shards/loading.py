"""Loading of shards: a partition's log is read and replayed into a state machine.

The event loop is not blocked: threads read the files, and records are replayed in slices. Internal
topics are compacted, so only the last record of a key counts: earlier ones are dropped without
being decoded. Transactional records and markers are all replayed, in their order, since the fate of
a record is decided by a marker after it.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from penstock.coordinator.runtime.step import (
    MARKER_RECORD,
    PLAIN,
    Batch,
    Record,
    marker_batch,
    transactional_batch,
)
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.limits import SHARD_LOAD_BYTES, SHARD_LOAD_RECORDS
from penstock.node.partition.partition import Partition
from penstock.records.batch import BatchHeader, batches
from penstock.records.record import ControlRecord, Row, control_kind, coordinator_epoch, rows_of
from penstock.world import World

# So many records make a full garbage collection noticeable.
_MANY_RECORDS = 10_000

Replay = Callable[[Record, Batch], None]


class _Logged(NamedTuple):
    offset: int
    record: Record
    batch: Batch


class ShardLoader:
    """Loads the shards of a node one after the other: loading them concurrently would leave little
    of the event loop to requests."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = asyncio.Lock()
        self._active = 0
        self._count = 0

    async def load(
        self,
        partition: Partition,
        end_offset: int,
        replay: Replay,
        should_continue: Callable[[], bool],
    ) -> int:
        """Replay everything below an offset; return the number of records. Stop early when
        `should_continue` returns False."""
        self._begin()
        try:
            async with self._lock:
                latest = await self._latest(partition, end_offset, should_continue)
                count = await _replay_slices(partition, latest, replay, should_continue)
            self._count += count
            return count
        finally:
            self._end()

    def _begin(self) -> None:
        """Disable garbage collection: traversing all that is being loaded, again and again, would
        block the event loop for tens of milliseconds each time."""
        self._active += 1
        gc.disable()

    def _end(self) -> None:
        self._active -= 1
        if self._active == 0:
            if self._count >= _MANY_RECORDS:
                gc.freeze()  # the loaded state is long-lived
            self._count = 0
            gc.enable()

    async def _latest(
        self, partition: Partition, end_offset: int, should_continue: Callable[[], bool]
    ) -> list[_Logged]:
        """Return the records to replay, in the order of their offsets."""
        # Plain records by key, all others by offset.
        latest: dict[bytes | int, _Logged] = {}
        has_transactions = False
        offset = 0
        while (
            should_continue() and (offset := max(offset, partition.log_start_offset)) < end_offset
        ):
            read = partition.read_for_follower(offset, SHARD_LOAD_BYTES, at_least_one=True).range
            if read is None:
                break
            data, before = await self._world.offload.read(read.read), offset
            for position, header in batches(data):
                if header.base_offset >= end_offset:
                    break
                if header.next_offset > offset:
                    has_transactions |= header.is_transactional
                    for logged in _logged(data, header, position):
                        key = logged.offset if logged.batch.transactional else logged.record.key
                        latest.pop(key, None)
                        latest[key] = logged
                offset = max(offset, header.next_offset)
            if offset == before:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{partition.topic_partition} cannot be read beyond offset {offset}",
                )
        # Nothing precedes the last plain record of a key but transactional ones: without those a
        # tombstone has nothing to remove.
        return [
            logged
            for logged in latest.values()
            if has_transactions or logged.record.value is not None
        ]


def _logged(data: bytes, header: BatchHeader, position: int) -> Iterator[_Logged]:
    if header.is_control:
        for row in rows_of(data, header, position):
            batch = _marker(header, row)
            if batch is not None:
                yield _Logged(row[0], MARKER_RECORD, batch)
        return
    batch = (
        transactional_batch(header.producer_id, header.producer_epoch)
        if header.is_transactional
        else PLAIN
    )
    for offset, _timestamp, key, value, _headers in rows_of(data, header, position):
        if key is not None:
            yield _Logged(offset, Record(key, value), batch)


def _marker(header: BatchHeader, row: Row) -> Batch | None:
    """Return None for control records of other kinds."""
    kind = control_kind(row[2])
    if kind not in (ControlRecord.ABORT, ControlRecord.COMMIT):
        return None
    return marker_batch(
        header.producer_id,
        header.producer_epoch,
        commit=kind is ControlRecord.COMMIT,
        coordinator_epoch=coordinator_epoch(row[3]),
    )


async def _replay_slices(
    partition: Partition,
    latest: list[_Logged],
    replay: Replay,
    should_continue: Callable[[], bool],
) -> int:
    remaining = iter(latest)
    count = 0
    while should_continue() and (slice_ := list(islice(remaining, SHARD_LOAD_RECORDS))):
        for offset, record, batch in slice_:
            try:
                replay(record, batch)
            except ProtocolError as error:
                raise ProtocolError(
                    f"the record at offset {offset} of {partition.topic_partition} is damaged: "
                    f"{error}"
                ) from error
        count += len(slice_)
        await asyncio.sleep(0)
    return count


async def wait_until(partition: Partition, condition: Callable[[], bool]) -> None:
    """Wait without a deadline. The condition must depend on what a partition notifies of: its role,
    its replicas, its high watermark."""
    changed = asyncio.Event()
    partition.on_change(changed.set)
    try:
        while not condition():
            changed.clear()
            await changed.wait()
    finally:
        partition.off_change(changed.set)
