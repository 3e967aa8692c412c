"""The logs of a store that periodic work looks at.

What happens to a log marks it: an append, a roll, a truncation, new settings. An idle log is not
marked, so that a node does no work for it: one with 100,000 partitions would otherwise spend most
of a core on looking at logs that need nothing.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from penstock.log import names
from penstock.log.counts import LogCounts

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.producers.state import ProducerStates

# Outdated entries of a heap that are kept until their time comes.
_MAX_OUTDATED = 64


class DueTimes:
    """Logs in the order of the times at which they are to be looked at, one time per log."""

    __slots__ = ("_count", "_heap", "_time_of")

    def __init__(self) -> None:
        self._time_of: dict[Log, float] = {}
        # The number makes entries of the same time comparable. An entry whose time is not that of
        # its log is outdated.
        self._heap: list[tuple[float, int, Log]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._time_of)

    def not_after(self, log: Log, time: float) -> None:
        """Look at the log at this time, unless it is looked at earlier: then its next time is
        decided again."""
        if time >= self._time_of.get(log, inf):
            return
        self._count += 1
        self._time_of[log] = time
        heappush(self._heap, (time, self._count, log))
        if len(self._heap) > 2 * len(self._time_of) + _MAX_OUTDATED:
            self._heap = [entry for entry in self._heap if self._time_of.get(entry[2]) == entry[0]]
            heapify(self._heap)

    def take(self, now: float) -> list[Log]:
        """Remove and return the logs whose time has come."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            time, _number, log = heappop(self._heap)
            if self._time_of.get(log) == time:
                del self._time_of[log]
                due.append(log)
        return due

    def forget(self, log: Log) -> None:
        self._time_of.pop(log, None)


class DueLogs:
    """What is marked. Dicts without values keep the order of the marks."""

    __slots__ = (
        "changed_checkpoints",
        "compaction",
        "counts",
        "flush_times",
        "flushes",
        "is_recovery_point_lowered",
        "producers",
        "retention",
        "retention_times",
    )

    def __init__(self) -> None:
        # Logs that sealed a segment, and those whose flush.ms passes, in seconds of the monotonic
        # clock.
        self.flushes: dict[Log, None] = {}
        self.flush_times = DueTimes()
        # Logs from which retention may delete segments: at its next run, and from a time on, in
        # milliseconds of the clock.
        self.retention: dict[Log, None] = {}
        self.retention_times = DueTimes()
        # Compacted logs with sealed segments that were not found clean.
        self.compaction: dict[Log, None] = {}
        # Producer states with a producer or a guard that may expire.
        self.producers: dict[ProducerStates, None] = {}
        # Checkpoints whose offsets changed since they were saved, and whether a recovery point was
        # lowered.
        self.changed_checkpoints: set[str] = set()
        self.is_recovery_point_lowered = False
        # What the logs of the store count, for metrics.
        self.counts = LogCounts()

    def forget(self, log: Log) -> None:
        """Drop a log that is deleted."""
        self.flushes.pop(log, None)
        self.flush_times.forget(log)
        self.retention.pop(log, None)
        self.retention_times.forget(log)
        self.compaction.pop(log, None)
        self.producers.pop(log.producers, None)
        self.changed_checkpoints.update(
            (names.RECOVERY_POINTS, names.LOG_STARTS, names.CLEAN_OFFSETS)
        )
