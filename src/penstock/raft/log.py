"""The metadata log as the state machine sees it, and how two logs are compared (KIP-595, KIP-630).

`node.quorum.log` implements `RaftLog` with files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.raft.voters import VoterSetHistory


class OffsetAndEpoch(NamedTuple):
    """Identifies the end of a log or of a snapshot.

    `offset` is the offset after the last record. `epoch` is the leader epoch of that record, 0 if
    there is none.
    """

    offset: int
    epoch: int

    @property
    def rank(self) -> tuple[int, int]:
        """Of two logs, the one whose end has the higher rank is more up to date."""
        return self.epoch, self.offset


class RaftLog(Protocol):
    """What the state machine reads of the log. End offsets are exclusive."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end(self) -> OffsetAndEpoch: ...

    @property
    def synced_end(self) -> int:
        """Records below this offset survive a power failure."""

    @property
    def start_snapshot(self) -> OffsetAndEpoch | None:
        """The snapshot that replaces the records below the log start offset; None if the log starts
        at 0."""

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    @property
    def voter_sets(self) -> VoterSetHistory:
        """The voters in the log; it changes with the log."""

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch of the log that is not above `epoch`, and its end offset.

        Returns the log's end if `epoch` is above every epoch of the log.
        """


@dataclass(frozen=True, slots=True)
class Diverging:
    """The logs differ. `end` is the largest epoch of the leader's log that is not above the
    follower's last epoch, with its end offset."""

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SnapshotRequired:
    """The leader no longer has the records; the follower must load this snapshot."""

    snapshot: OffsetAndEpoch


def validate_offset_and_epoch(
    log: RaftLog, fetch_offset: int, last_fetched_epoch: int
) -> Diverging | SnapshotRequired | None:
    """Return None if a log that ends at this offset and epoch is a prefix of `log`.

    Otherwise return what the follower must do before it can continue to fetch.
    """
    if fetch_offset == 0 and log.start_offset == 0:
        return None
    start, latest = log.start_snapshot, log.latest_snapshot
    if start is not None and latest is not None:
        at_start = fetch_offset == log.start_offset and last_fetched_epoch != start.epoch
        if fetch_offset < log.start_offset or at_start or last_fetched_epoch < start.epoch:
            return SnapshotRequired(latest)
    end = log.end_of_epoch(last_fetched_epoch)
    if end.epoch != last_fetched_epoch or end.offset < fetch_offset:
        return Diverging(end)
    return None


def truncation_offset(log: RaftLog, diverging: OffsetAndEpoch) -> int:
    """Return the offset to which a follower truncates, given the leader's diverging epoch.

    Earlier epochs may diverge too; the next fetch finds out.
    """
    local = log.end_of_epoch(diverging.epoch)
    if local.epoch == diverging.epoch or diverging.epoch == 0:
        return min(local.offset, diverging.offset)
    return local.offset
