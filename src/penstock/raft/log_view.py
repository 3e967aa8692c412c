"""The log as the machine sees it, and where two logs match. Owns the rule of KIP-595 and KIP-630;
never knows files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


class OffsetAndEpoch(NamedTuple):
    """The end of a log or a snapshot: the offset after its last record, and that record's epoch (0
    where there is none)."""

    offset: int
    epoch: int

    @property
    def rank(self) -> tuple[int, int]:
        """Of two logs, the one with the higher rank is more up to date."""
        return self.epoch, self.offset


class LogView(Protocol):
    """What the machine asks of the log. End offsets are exclusive."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end(self) -> OffsetAndEpoch: ...

    @property
    def synced_end(self) -> int:
        """What is before it survives a power failure."""

    @property
    def start_snapshot(self) -> OffsetAndEpoch | None:
        """The snapshot that stands for what is before the log's start; None where the log begins at
        0."""

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch of the log not above this one, and where it ended; the log's end for
        one above all."""


@dataclass(frozen=True, slots=True)
class Diverging:
    """The logs differ: the largest epoch of the leader's log not above the follower's last one, and
    where it ended."""

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Behind:
    """The leader no longer has the records, but this snapshot."""

    snapshot: OffsetAndEpoch


def mismatch(log: LogView, fetch_offset: int, last_epoch: int) -> Diverging | Behind | None:
    """Whether a log that ends at this offset with a record of this epoch is the beginning of ours
    (None), and what to do if it is not."""
    if fetch_offset == 0 and log.start_offset == 0:
        return None
    start, latest = log.start_snapshot, log.latest_snapshot
    if start is not None and latest is not None:
        at_start = fetch_offset == log.start_offset and last_epoch != start.epoch
        if fetch_offset < log.start_offset or at_start or last_epoch < start.epoch:
            return Behind(latest)
    end = log.end_of_epoch(last_epoch)
    if end.epoch != last_epoch or end.offset < fetch_offset:
        return Diverging(end)
    return None


def truncation_offset(log: LogView, diverging: OffsetAndEpoch) -> int:
    """Where a follower cuts its log, told what the leader's looks like: the epochs below may differ
    too, which the next fetch shows."""
    own = log.end_of_epoch(diverging.epoch)
    return (
        min(own.offset, diverging.offset)
        if own.epoch == diverging.epoch or diverging.epoch == 0
        else own.offset
    )
