"""Loading of shards: a partition's log is read and replayed into a state machine.

The event loop is not blocked: threads read the files, and records are replayed in slices. Internal
topics are compacted, so only the last record of a key counts: earlier ones are dropped without
being decoded. A transactional record counts if the marker after it commits its transaction.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from itertools import islice
from operator import itemgetter
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


class Logged(NamedTuple):
    offset: int
    record: Record
    batch: Batch


class LatestRecords:
    """Selects what a machine has to replay of a log, whose records are added in their order.

    Records of a transaction wait for its marker. If it commits, they are plain records at their
    place in the log; if it aborts, they are dropped. Those of a transaction that is still open are
    replayed as what they are, unless a tombstone after them has deleted their key. A log of
    transactions is long before it is compacted; of each key, this holds the last record, and the
    last one of each open transaction.
    """

    def __init__(self) -> None:
        self._by_key: dict[bytes, Logged] = {}
        # By producer id and key; and the producers by key, of which a log may have many.
        self._open: dict[int, dict[bytes, Logged]] = {}
        self._producers: dict[bytes, set[int]] = {}
        self._is_in_order = True

    def add(self, logged: Logged) -> None:
        key, batch = logged.record.key, logged.batch
        if batch.marker is not None:
            ended = self._open.pop(batch.producer_id, {})
            for pending in ended.values():
                self._forget(batch.producer_id, pending.record.key)
                if batch.marker.commit:
                    self._commit(pending)
        elif batch.transactional:
            self._open.setdefault(batch.producer_id, {})[key] = logged
            self._producers.setdefault(key, set()).add(batch.producer_id)
        else:
            self._by_key.pop(key, None)
            self._by_key[key] = logged
            if logged.record.value is None and key in self._producers:
                for producer_id in self._producers.pop(key):
                    del self._open[producer_id][key]

    def _forget(self, producer_id: int, key: bytes) -> None:
        producers = self._producers[key]
        producers.remove(producer_id)
        if not producers:
            del self._producers[key]

    def _commit(self, pending: Logged) -> None:
        key = pending.record.key
        later = self._by_key.get(key)
        if later is None or later.offset < pending.offset:
            self._by_key[key] = pending._replace(batch=PLAIN)
            self._is_in_order = False

    def selected(self) -> list[Logged]:
        """Return the records in the order of their offsets. Tombstones have nothing to remove."""
        selected = [logged for logged in self._by_key.values() if logged.record.value is not None]
        if self._open or not self._is_in_order:
            for pending_by_key in self._open.values():
                selected += pending_by_key.values()
            selected.sort(key=itemgetter(0))
        return selected


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
    ) -> list[Logged]:
        """Return the records to replay, in the order of their offsets."""
        latest = LatestRecords()
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
                    for logged in _logged(data, header, position):
                        latest.add(logged)
                offset = max(offset, header.next_offset)
            if offset == before:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{partition.topic_partition} cannot be read beyond offset {offset}",
                )
        return latest.selected()


def _logged(data: bytes, header: BatchHeader, position: int) -> Iterator[Logged]:
    if header.is_control:
        for row in rows_of(data, header, position):
            batch = _marker(header, row)
            if batch is not None:
                yield Logged(row[0], MARKER_RECORD, batch)
        return
    batch = (
        transactional_batch(header.producer_id, header.producer_epoch)
        if header.is_transactional
        else PLAIN
    )
    for offset, _timestamp, key, value, _headers in rows_of(data, header, position):
        if key is not None:
            yield Logged(offset, Record(key, value), batch)


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
    latest: list[Logged],
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
