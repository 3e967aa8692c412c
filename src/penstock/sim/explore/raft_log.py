"""A metadata log in memory for the raft explorer, with snapshots and an unsynced tail.

It does what `node.quorum.log.MetadataLog` does, without files. An entry stands for a batch.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.ids import NO_LEADER_EPOCH
from penstock.log.leader_epochs import LeaderEpochs
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.voters import RECONFIGURATION_LEVEL, VotersEntry, VoterSet, VoterSetHistory


class Entry(NamedTuple):
    """`number` is one that no other entry has. `voters` are those of a VotersRecord."""

    epoch: int
    number: int
    voters: VoterSet | None = None

    def __repr__(self) -> str:
        voters = "" if self.voters is None else f", voters {list(self.voters.ids)}"
        return f"({self.epoch}, {self.number}{voters})"


RETAINED_SNAPSHOTS = 2


class MemoryLog:
    """A `raft.log.RaftLog`. `static` are the configured voters, `bootstrap` those of the bootstrap
    checkpoint."""

    __slots__ = (
        "_snapshot_voters",
        "_start_snapshot",
        "entries",
        "epochs",
        "snapshots",
        "start_offset",
        "synced_end",
        "voter_sets",
    )

    def __init__(self, static: VoterSet, bootstrap: VoterSet | None = None) -> None:
        self.voter_sets = VoterSetHistory(static)
        if bootstrap is not None:
            self.voter_sets.restart(-1, VotersEntry(-1, RECONFIGURATION_LEVEL, bootstrap))
        self.start_offset = 0
        self.entries: list[Entry] = []
        self.epochs = LeaderEpochs()
        self.synced_end = 0
        self.snapshots: list[OffsetAndEpoch] = []
        # Snapshot -> the voters in it; None with kraft.version 0.
        self._snapshot_voters: dict[OffsetAndEpoch, VoterSet | None] = {}
        self._start_snapshot: OffsetAndEpoch | None = None

    # RaftLog

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def end(self) -> OffsetAndEpoch:
        if self.entries:
            return OffsetAndEpoch(self.start_offset + len(self.entries), self.entries[-1].epoch)
        start = self.start_snapshot
        return OffsetAndEpoch(self.start_offset, 0 if start is None else start.epoch)

    @property
    def start_snapshot(self) -> OffsetAndEpoch | None:
        return self._start_snapshot if self.start_offset > 0 else None

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots[-1] if self.snapshots else None

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        end = self.epochs.end_offset_for(epoch, self.end_offset)
        return OffsetAndEpoch(end.end_offset, end.epoch) if end.end_offset >= 0 else self.end

    # Reading

    def entry(self, offset: int) -> Entry | None:
        """Return the entry at an offset; None if the log does not have it, or no longer."""
        index = offset - self.start_offset
        return self.entries[index] if 0 <= index < len(self.entries) else None

    def epoch_at(self, offset: int) -> int:
        entry = self.entry(offset)
        if entry is not None:
            return entry.epoch
        start = self.start_snapshot
        return 0 if start is None else start.epoch

    def snapshot_voters(self, snapshot: OffsetAndEpoch) -> VoterSet | None:
        return self._snapshot_voters[snapshot]

    # Writing

    def append(self, entry: Entry) -> None:
        self.epochs.assign(entry.epoch, self.end_offset)
        if entry.voters is not None:
            self.voter_sets.add_voters(self.end_offset, entry.voters)
        self.entries.append(entry)

    def truncate(self, offset: int) -> None:
        """Truncate to `offset` and sync."""
        if offset < self.end_offset:
            self._cut(offset)
            self.synced_end = offset

    def _cut(self, offset: int) -> None:
        del self.entries[max(0, offset - self.start_offset) :]
        self.epochs.truncate_from_end(offset)
        self.voter_sets.truncate(offset)

    def truncate_to_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Replace all records by a snapshot."""
        self.entries.clear()
        self.epochs = LeaderEpochs()
        self.start_offset = self.synced_end = snapshot.offset
        self._start_snapshot = snapshot
        self.snapshots = [snapshot]
        last, voters = snapshot.offset - 1, self._snapshot_voters[snapshot]
        self.voter_sets.restart(
            last, None if voters is None else VotersEntry(last, RECONFIGURATION_LEVEL, voters)
        )

    def add_generated_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        latest = self.voter_sets.before(snapshot.offset)
        self.add_snapshot(snapshot, latest.voters if latest.kraft_version else None)

    def add_snapshot(self, snapshot: OffsetAndEpoch, voters: VoterSet | None) -> None:
        if snapshot not in self.snapshots:
            self.snapshots = sorted([*self.snapshots, snapshot])
            self._snapshot_voters[snapshot] = voters

    def delete_before_snapshot(self, latest: OffsetAndEpoch) -> None:
        """Delete what the oldest retained snapshot covers. `latest` was just generated; a later one
        was downloaded but not installed."""
        start = self.start_offset
        usable = [each for each in self.snapshots if start <= each.offset <= latest.offset]
        if len(usable) >= RETAINED_SNAPSHOTS:
            self._start_snapshot = usable[-RETAINED_SNAPSHOTS]
            del self.entries[: self._start_snapshot.offset - start]
            self.start_offset = self._start_snapshot.offset
            self.epochs.truncate_from_start(self.start_offset)
            self.voter_sets.forget_before(self.start_offset)
            self.snapshots = [each for each in self.snapshots if each.offset >= self.start_offset]

    # Restarting

    def lose_tail(self, kept: int) -> None:
        """Lose power: of the unsynced entries only the first `kept` survive."""
        self._cut(min(self.synced_end + kept, self.end_offset))

    def recover(self) -> None:
        """Open the log after a crash: sync what is left, and start at a snapshot that the log does
        not reach."""
        latest = self.latest_snapshot
        if latest is not None and not (
            latest.offset <= self.end_offset
            and self.epochs.epoch_at(latest.offset - 1) in (latest.epoch, NO_LEADER_EPOCH)
        ):
            self.truncate_to_snapshot(latest)
        self.synced_end = self.end_offset
