"""Timestamps of records of this broker's replicas, for the lag of groups in seconds.

The timestamp is in the header of the batch, which is usually in memory. Other headers are read from
the disk, some per scrape.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from penstock.errors import KafkaError, NotInMemory
from penstock.ids import TopicPartition
from penstock.limits import SCRAPE_READ_S, SCRAPED_COLD_RECORDS, SCRAPED_PARTITIONS_PER_STEP
from penstock.metrics.reads import Reads
from penstock.metrics.turn import Turn
from penstock.node.partition.partition import Partition
from penstock.world import Clock

log = logging.getLogger(__name__)


class _Cold(NamedTuple):
    name: TopicPartition
    partition: Partition
    offset: int
    warm: Callable[[], None]


class LocalTimes:
    """Each timestamp is looked up once while its record is the first that is not committed."""

    def __init__(self, clock: Clock, reads: Reads) -> None:
        self._clock = clock
        self._reads = reads
        # In milliseconds; -1 if the record has no timestamp.
        self._times: dict[tuple[TopicPartition, int], int] = {}
        # How many records that were not in memory were read: the next scrape begins with others.
        self._read_count = 0

    def age_s(self, name: TopicPartition, offset: int) -> float | None:
        timestamp = self._times.get((name, offset))
        if timestamp is None or timestamp < 0:
            return None
        return max(0, self._clock.now_ms() - timestamp) / 1000

    async def refresh(
        self, wanted: list[tuple[TopicPartition, Partition, int]], turn: Turn
    ) -> None:
        """Look up the timestamps of these records, and forget the others. A record that cannot be
        read now is looked up again by the next scrape."""
        times, self._times = self._times, {}
        cold: list[_Cold] = []
        for number, (name, partition, offset) in enumerate(wanted, 1):
            timestamp = times.get((name, offset))
            if timestamp is not None:
                self._times[name, offset] = timestamp
            else:
                try:
                    self._look_up(name, partition, offset)
                except NotInMemory as missing:
                    cold.append(_Cold(name, partition, offset, missing.warm))
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
        if cold:
            await self._read(cold)

    async def _read(self, cold: list[_Cold]) -> None:
        """Read some records into memory. The next scrape begins after them, so that those that
        cannot be read do not keep it from the others."""
        start = self._read_count % len(cold)
        some = (cold[start:] + cold[:start])[:SCRAPED_COLD_RECORDS]
        self._read_count += len(some)
        by_directory: dict[str, list[Callable[[], None]]] = {}
        for each in some:
            by_directory.setdefault(each.partition.directory.path, []).append(each.warm)
        end = self._clock.monotonic() + SCRAPE_READ_S / 2
        results = await self._reads.results(
            {
                path: partial(_warm_all, warms, self._clock.monotonic, end)
                for path, warms in by_directory.items()
            }
        )
        for each in some:
            if each.partition.directory.path in results:
                try:
                    self._look_up(each.name, each.partition, each.offset)
                except NotInMemory:
                    continue  # it was not read, or is out of memory again

    def _look_up(self, name: TopicPartition, partition: Partition, offset: int) -> None:
        """Raises NotInMemory."""
        try:
            timestamp = partition.log.timestamp_at(offset, at_once=True)
        except KafkaError:
            return  # damaged or offline; other measures report it
        if timestamp is not None:
            self._times[name, offset] = timestamp


def _warm_all(warms: list[Callable[[], None]], monotonic: Callable[[], float], end: float) -> None:
    """Read records into memory in a thread, one after the other until a time. An error must not
    keep the scrape from the others; whoever reads the record reports it."""
    for warm in warms:
        if monotonic() > end:
            return
        try:
            warm()
        except (OSError, KafkaError) as error:
            log.info("a record was not read for the lag of a group: %r", error)
