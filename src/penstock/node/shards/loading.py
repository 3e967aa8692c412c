"""The state of a coordinator, read from its partition's log. The loop goes on meanwhile: threads
read the files, and records are taken in slices.

The topic is compacted, so only the last record of a key means anything: the others are passed over
without being looked into.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from itertools import islice

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import GROUP_LOAD_BYTES, GROUP_RECORDS_A_TURN
from penstock.node.partition.partition import Partition
from penstock.records.batch import batches
from penstock.records.record import Row, rows_of
from penstock.world import World

# So many records make a full collection of garbage noticeable.
_MANY = 10_000

Replay = Callable[[int, bytes, bytes | None, int], None]


class Loading:
    """The shards of a node, loaded one after the other: all at once would leave little of the loop
    to others."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._turn = asyncio.Lock()
        self._under_way = 0
        self._count = 0

    async def load(
        self,
        partition: Partition,
        end_offset: int,
        replay: Replay,
        still_wanted: Callable[[], bool],
    ) -> int:
        """Replays what is below an offset; gives how many records that were. Ends early when it is
        not wanted any more."""
        self._begin()
        try:
            async with self._turn:
                latest = await _latest_by_key(self._world, partition, end_offset, still_wanted)
                count = await _replay(latest, replay, still_wanted)
            self._count += count
            return count
        finally:
            self._end()

    def _begin(self) -> None:
        """No garbage is looked for meanwhile: going through all that is being loaded, again and
        again, would hold up the loop for tens of milliseconds each time."""
        self._under_way += 1
        gc.disable()

    def _end(self) -> None:
        self._under_way -= 1
        if self._under_way == 0:
            if self._count >= _MANY:
                gc.freeze()  # what was loaded stays
            self._count = 0
            gc.enable()


async def _replay(
    latest: Mapping[bytes, Row], replay: Replay, still_wanted: Callable[[], bool]
) -> int:
    rows = (row for row in latest.values() if row[3] is not None)
    count = 0
    while still_wanted() and (slice_ := list(islice(rows, GROUP_RECORDS_A_TURN))):
        for offset, timestamp, key, value, _headers in slice_:
            replay(offset, key or b"", value, timestamp)
        count += len(slice_)
        await asyncio.sleep(0)
    return count


async def _latest_by_key(
    world: World, partition: Partition, end_offset: int, still_wanted: Callable[[], bool]
) -> dict[bytes, Row]:
    """In the order of their offsets."""
    latest: dict[bytes, Row] = {}
    offset = 0
    while still_wanted() and (offset := max(offset, partition.log_start_offset)) < end_offset:
        found = partition.read_for_follower(offset, GROUP_LOAD_BYTES, at_least_one=True).range
        if found is None:
            break
        data, before = await world.offload.thread(found.read), offset
        for position, header in batches(data):
            if header.base_offset >= end_offset:
                break
            # What belongs to transactions counts once it is known how they ended, and there are
            # none yet.
            if (
                not header.is_control
                and not header.is_transactional
                and header.next_offset > offset
            ):
                for row in rows_of(data, header, position):
                    if row[2] is not None:
                        latest.pop(row[2], None)
                        latest[row[2]] = row
            offset = max(offset, header.next_offset)
        if offset == before:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition.topic_partition} cannot be read beyond offset {offset}",
            )
    return latest


async def wait_until(partition: Partition, condition: Callable[[], bool]) -> None:
    """However long that takes. The condition must depend on what a partition tells of: its role,
    its replicas, its watermark."""
    changed = asyncio.Event()
    partition.on_change(changed.set)
    try:
        while not condition():
            changed.clear()
            await changed.wait()
    finally:
        partition.off_change(changed.set)
