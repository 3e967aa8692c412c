"""Timestamps of records of this broker's replicas, for the lag of groups in seconds.

The timestamp is in the header of the batch, which is usually in memory. Other headers are read from
the disk, some per scrape. Markers of transactions are no records: a group that commits the offset
after each record that it has read stays at the marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from penstock.errors import KafkaError, NotInMemory
from penstock.ids import TopicPartition
from penstock.limits import (
    SCRAPE_READ_S,
    SCRAPED_COLD_RECORDS,
    SCRAPED_MARKERS,
    SCRAPED_PARTITIONS_PER_STEP,
)
from penstock.metrics.reads import Reads
from penstock.metrics.turn import Turn
from penstock.node.partition.partition import Partition
from penstock.world import Clock

log = logging.getLogger(__name__)


class First(NamedTuple):
    """The first record at or after an offset. Between `offset` and `after` there are only markers.
    `timestamp` is in milliseconds: -1 if the record has none, None if it was not found before
    `after`."""

    offset: int
    after: int
    timestamp: int | None

    def is_known(self, offset: int, end: int) -> bool:
        """Return True if nothing is to be looked up: the record was found, or only markers follow
        the offset, up to the high watermark `end`."""
        return self.offset == offset and (self.timestamp is not None or self.after == end)

    def age_s(self, now_ms: int) -> float | None:
        """Return the age of the record: None if it has no timestamp, 0 if there is no record."""
        timestamp = self.timestamp
        if timestamp is None:
            return 0.0
        if timestamp < 0:
            return None
        return (now_ms - timestamp) / 1000 if timestamp < now_ms else 0.0


# The first records that a group has not committed.
Firsts = dict[TopicPartition, First]


class Wanted(NamedTuple):
    """The first record at or after an offset, below the high watermark `end`. It is looked up for
    `firsts`."""

    firsts: Firsts
    name: TopicPartition
    partition: Partition
    offset: int
    end: int

    @property
    def found(self) -> First | None:
        first = self.firsts.get(self.name)
        return None if first is None or not first.is_known(self.offset, self.end) else first


class LocalTimes:
    """Looks up timestamps that no former scrape has found."""

    def __init__(self, clock: Clock, reads: Reads) -> None:
        self._clock = clock
        self._reads = reads
        # How many records that were not in memory were read: the next scrape begins with others.
        self._read_count = 0

    async def look_up(self, wanted: list[Wanted], turn: Turn) -> None:
        """Look up the timestamps of these records. One that cannot be read now is looked up again
        by the next scrape."""
        cold: list[tuple[Wanted, Callable[[], None]]] = []
        for number, each in enumerate(wanted, 1):
            try:
                _look_up(each)
            except NotInMemory as missing:
                cold.append((each, missing.warm))
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
        if cold:
            await self._read(cold)

    async def _read(self, cold: list[tuple[Wanted, Callable[[], None]]]) -> None:
        """Read some records into memory. The next scrape begins after them, so that those that
        cannot be read do not keep it from the others."""
        start = self._read_count % len(cold)
        some = (cold[start:] + cold[:start])[:SCRAPED_COLD_RECORDS]
        self._read_count += len(some)
        by_directory: dict[str, list[Callable[[], None]]] = {}
        for each, warm in some:
            by_directory.setdefault(each.partition.directory.path, []).append(warm)
        end = self._clock.monotonic() + SCRAPE_READ_S / 2
        results = await self._reads.results(
            {
                path: partial(_warm_all, warms, self._clock.monotonic, end)
                for path, warms in by_directory.items()
            }
        )
        for each, _warm in some:
            if each.partition.directory.path in results:
                try:
                    _look_up(each)
                except NotInMemory:
                    continue  # it was not read, or is out of memory again


def _look_up(wanted: Wanted) -> None:
    """Find a record, or the markers before it. Raises NotInMemory."""
    firsts, name, _partition, start, end = wanted
    before, offset = firsts.get(name), start
    if before is not None and before.offset == start and before.after <= end:
        offset = before.after
    for _ in range(SCRAPED_MARKERS):
        if offset >= end:
            return
        try:
            header = wanted.partition.log.header_at(offset, at_once=True)
        except KafkaError:
            return  # damaged or offline; other measures report it
        if header is None:
            return
        if not header.is_control:
            firsts[name] = First(start, offset, header.timestamp_at(offset))
            return
        offset = header.next_offset
        firsts[name] = First(start, offset, None)


def _warm_all(warms: list[Callable[[], None]], monotonic: Callable[[], float], end: float) -> None:
    """Read records into memory in a thread, one after the other until a time. After an
    error the scrape goes on with the next record; a fetch of the record reports the error."""
    for warm in warms:
        if monotonic() > end:
            return
        try:
            warm()
        except (OSError, KafkaError) as error:
            log.info("a record was not read for the lag of a group: %r", error)
