"""A metadata log in memory for the raft explorer, with snapshots and an unsynced tail.

It does what `node.quorum.log.MetadataLog` does, without files. An entry stands for a batch.
"""

from __future__ import annotations

from penstock.log.leader_epochs import LeaderEpochs
from penstock.raft.log import OffsetAndEpoch

# The epoch of an entry, and a number that no other entry has.
Entry = tuple[int, int]

RETAINED_SNAPSHOTS = 2


class MemoryLog:
    """A `raft.log.RaftLog`."""

    __slots__ = ("entries", "epochs", "snapshots", "start_offset", "synced_end")

    def __init__(self) -> None:
        self.start_offset = 0
        self.entries: list[Entry] = []
        self.epochs = LeaderEpochs()
        self.synced_end = 0
        self.snapshots: list[OffsetAndEpoch] = []

    # RaftLog

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def end(self) -> OffsetAndEpoch:
        if self.entries:
            return OffsetAndEpoch(self.start_offset + len(self.entries), self.entries[-1][0])
        start = self.start_snapshot
        return OffsetAndEpoch(self.start_offset, 0 if start is None else start.epoch)

    @property
    def start_snapshot(self) -> OffsetAndEpoch | None:
        start = self.start_offset
        if start == 0:
            return None
        return next((snapshot for snapshot in self.snapshots if snapshot.offset == start), None)

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
            return entry[0]
        start = self.start_snapshot
        return 0 if start is None else start.epoch

    # Writing

    def append(self, entry: Entry) -> None:
        self.epochs.assign(entry[0], self.end_offset)
        self.entries.append(entry)

    def truncate(self, offset: int) -> None:
        """Truncate to `offset` and sync."""
        if offset < self.end_offset:
            self._cut(offset)
            self.synced_end = offset

    def _cut(self, offset: int) -> None:
        del self.entries[max(0, offset - self.start_offset) :]
        self.epochs.truncate_from_end(offset)

    def truncate_to_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Replace all records by a snapshot."""
        self.entries.clear()
        self.epochs = LeaderEpochs()
        self.start_offset = self.synced_end = snapshot.offset
        self.snapshots = [snapshot]

    def add_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        if snapshot not in self.snapshots:
            self.snapshots = sorted([*self.snapshots, snapshot])

    def delete_before_snapshot(self) -> None:
        """Delete the records that the oldest retained snapshot covers."""
        retained = self.snapshots[-RETAINED_SNAPSHOTS:]
        if len(retained) == RETAINED_SNAPSHOTS and retained[0].offset > self.start_offset:
            del self.entries[: retained[0].offset - self.start_offset]
            self.start_offset = retained[0].offset
            self.epochs.truncate_from_start(self.start_offset)
        self.snapshots = retained

    # Restarting

    def lose_tail(self, kept: int) -> None:
        """Lose power: of the unsynced entries only the first `kept` survive."""
        self._cut(min(self.synced_end + kept, self.end_offset))

    def recover(self) -> None:
        """Open the log after a crash: sync what is left, and start at a snapshot that is ahead."""
        latest = self.latest_snapshot
        if latest is not None and (
            latest.offset > self.end_offset or latest.epoch > self.epochs.latest
        ):
            self.truncate_to_snapshot(latest)
        self.synced_end = self.end_offset
