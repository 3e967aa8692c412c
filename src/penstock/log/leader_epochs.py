"""Which leader epoch starts at which offset. PURE; the log writes the file.

Epochs and start offsets both increase from entry to entry. A follower finds where its log diverges
by the end of its own last epoch in the leader's log (KIP-101, KIP-279).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from penstock.ids import NO_LEADER_EPOCH, UNKNOWN_OFFSET


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    epoch: int
    end_offset: int


class LeaderEpochs:
    """The epochs of one log."""

    __slots__ = ("entries",)

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        self.entries: list[EpochStart] = []
        for entry in entries or []:
            self.assign(*entry)

    @property
    def latest(self) -> int:
        return self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record the start of an epoch; return False if it is known. Entries that contradict it are
        removed: the newest entry is right."""
        if epoch < 0 or (
            self.entries
            and epoch == self.entries[-1].epoch
            and start_offset >= self.entries[-1].start_offset
        ):
            return False
        while self.entries and (
            self.entries[-1].epoch >= epoch or self.entries[-1].start_offset >= start_offset
        ):
            self.entries.pop()
        self.entries.append(EpochStart(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the largest epoch not above this one, and where it ended; (-1, -1) for an epoch
        above all."""
        if not self.entries or epoch > self.latest or epoch < 0:
            return EpochEnd(NO_LEADER_EPOCH, UNKNOWN_OFFSET)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        following = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        end = self.entries[following].start_offset
        return EpochEnd(self.entries[following - 1].epoch if following else epoch, end)

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at an offset."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[number - 1].epoch if number else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Remove the epochs that start at or after the log's new end."""
        before = len(self.entries)
        while self.entries and self.entries[-1].start_offset >= end_offset:
            self.entries.pop()
        return len(self.entries) != before

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove the epochs before the log's new start. The epoch at the new start begins there."""
        number = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if number == 0 or (number == 1 and self.entries[0].start_offset == start_offset):
            return False
        self.entries[:number] = [EpochStart(self.entries[number - 1].epoch, start_offset)]
        return True
