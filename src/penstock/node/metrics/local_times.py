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


class Wanted(NamedTuple):
    """The first record at or after an offset, below the high watermark `end`."""

    name: TopicPartition
    partition: Partition
    offset: int
    end: int


class LocalTimes:
    """Each timestamp is looked up once while its record is the first that is not committed."""

    def __init__(self, clock: Clock, reads: Reads) -> None:
        self._clock = clock
        self._reads = reads
        # In milliseconds; -1 if the record has no timestamp.
        self._times: dict[tuple[TopicPartition, int], int] = {}
        # Where only markers follow an offset, as far as was looked: the offset after them.
        self._after_markers: dict[tuple[TopicPartition, int], int] = {}
        # How many records that were not in memory were read: the next scrape begins with others.
        self._read_count = 0

    def age_s(self, wanted: Wanted) -> float | None:
        """Return the age of a record in seconds: None if it is not known, 0 if there is no such
        record."""
        key = wanted.name, wanted.offset
        timestamp = self._times.get(key)
        if timestamp is None:
            return 0.0 if self._after_markers.get(key, wanted.offset) >= wanted.end else None
        return None if timestamp < 0 else max(0, self._clock.now_ms() - timestamp) / 1000

    async def refresh(self, wanted: list[Wanted], turn: Turn) -> None:
        """Look up the timestamps of these records, and forget the others. A record that cannot be
        read now is looked up again by the next scrape."""
        times, self._times = self._times, {}
        after_markers, self._after_markers = self._after_markers, {}
        cold: list[tuple[Wanted, Callable[[], None]]] = []
        for number, each in enumerate(wanted, 1):
            key = each.name, each.offset
            timestamp = times.get(key)
            if timestamp is not None:
                self._times[key] = timestamp
            else:
                if (after := after_markers.get(key)) is not None and after <= each.end:
                    self._after_markers[key] = after
                try:
                    self._look_up(each)
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
                    self._look_up(each)
                except NotInMemory:
                    continue  # it was not read, or is out of memory again

    def _look_up(self, wanted: Wanted) -> None:
        """Raises NotInMemory."""
        key = wanted.name, wanted.offset
        offset = self._after_markers.get(key, wanted.offset)
        for _ in range(SCRAPED_MARKERS):
            if offset >= wanted.end:
                return
            try:
                header = wanted.partition.log.header_at(offset, at_once=True)
            except KafkaError:
                return  # damaged or offline; other measures report it
            if header is None:
                return
            if not header.is_control:
                self._times[key] = header.timestamp_at(offset)
                return
            offset = self._after_markers[key] = header.next_offset


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
