"""The segments of one log, oldest first: lookup by offset, and reads.

Reads return file ranges, not bytes. The caller knows the log's offsets and says how far a reader
may see. End offsets are exclusive. The last segment is active: it takes the appends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import overload

from penstock.log.files import FileRange, OpenFiles
from penstock.log.index import AbortedTxn
from penstock.log.retention import SegmentFacts
from penstock.log.segment import Segment
from penstock.records.batch import BatchHeader


class LogSegments(Sequence[Segment]):
    """A log has at least one segment, except while it restarts at another offset."""

    __slots__ = ("_segments",)

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size(self) -> int:
        segments = self._segments
        if len(segments) == 1:  # most logs of a node with many
            return segments[0].size
        return sum([segment.size for segment in segments])

    # Lookup

    def floor(self, offset: int) -> int:
        """Return the index of the last segment that begins at or before an offset; 0 if none
        does."""
        segments = self._segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)

    def ceiling(self, offset: int) -> int:
        """Return the index of the first segment that begins at or after an offset; the number of
        segments if none does."""
        return bisect_left(self._segments, offset, key=_base_offset)

    def batch_start(self, offset: int) -> int:
        """Return the base offset of the batch that holds an offset."""
        found = self._segments[self.floor(offset)].find(offset)
        return offset if found is None else min(offset, found[1].base_offset)

    def facts(self, log_end_offset: int) -> list[SegmentFacts]:
        """Return what retention needs to know of each segment."""
        ends = [segment.base_offset for segment in self._segments[1:]] + [log_end_offset]
        return [
            SegmentFacts(end, segment.size, segment.largest_time)
            for end, segment in zip(ends, self._segments, strict=True)
        ]

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        below: int,
        log_end_offset: int,
        at_least_one: bool,
        at_once: bool,
    ) -> FileRange | None:
        """Implement `Log.read`; `below` is not above the log's end."""
        number = self.floor(offset)
        while offset < below and number < len(self._segments):
            segment = self._segments[number]
            found = segment.find(offset, at_once=at_once)
            if found is not None:
                position, header = found
                if header.size > max_bytes and not at_least_one:
                    return None
                end = (
                    segment.size
                    if below >= log_end_offset
                    else self._bound(number, below, log_end_offset, at_once=at_once)
                )
                limit = position + max(max_bytes, header.size)
                if limit < end:
                    end = segment.last_batch_end(position, header, limit)
                return segment.range(position, end - position) if end > position else None
            number += 1
        return None

    def _bound(self, number: int, below: int, log_end_offset: int, *, at_once: bool) -> int:
        """Return the position in a segment where offsets reach a bound."""
        segment = self._segments[number]
        following = (
            self._segments[number + 1].base_offset
            if number + 1 < len(self._segments)
            else log_end_offset
        )
        if below >= following:
            return segment.size
        found = segment.find(below, at_once=at_once)
        return segment.size if found is None else found[0]

    def header_at(self, offset: int, *, at_once: bool) -> BatchHeader | None:
        """Return the header of the first batch that ends at or after an offset; None if the log
        ends before."""
        for number in range(self.floor(offset), len(self._segments)):
            found = self._segments[number].find(offset, at_once=at_once)
            if found is not None:
                return found[1]
        return None

    def end_of_read(self, offset: int, read: FileRange, below: int) -> int:
        """Return an offset that the last read, from an offset on and with a bound, does not reach:
        the next batch, or the next segment if that batch is not known."""
        for number in range(self.floor(offset), len(self._segments)):
            if self._segments[number].file is not read.file:
                continue
            end = self._segments[number].end_of_read(read.position + read.length)
            if end is None and number + 1 < len(self._segments):
                end = self._segments[number + 1].base_offset
            return below if end is None else min(end, below)
        return below

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that have records between two offsets. A segment has
        them in the order of their markers."""
        aborted = []
        for number in range(self.floor(first_offset), len(self._segments)):
            entries = self._segments[number].txn_index.entries()
            for index in range(bisect_left(entries, first_offset, key=_last_offset), len(entries)):
                txn = entries[index]
                if txn.first_offset < end_offset:
                    aborted.append(txn)
                if txn.last_stable_offset >= end_offset:
                    return aborted
        return aborted

    # Changes

    def add(self, segment: Segment) -> None:
        """Make a new segment the active one."""
        self._segments.append(segment)

    def remove_oldest(self, count: int) -> list[Segment]:
        """Take the oldest segments out of the log; their files stay."""
        removed, self._segments = self._segments[:count], self._segments[count:]
        return removed

    def delete_from(self, number: int, files: OpenFiles) -> None:
        """Take segments out of the log and remove their files, the last one first: a crash in
        between leaves a log without a hole."""
        for segment in reversed(self._segments[number:]):
            for path in segment.paths:
                files.forget(path)
                if files.disk.exists(path):
                    files.disk.remove(path)
        del self._segments[number:]

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Put a compacted segment in the place of adjacent ones."""
        first = self._segments.index(old[0])
        self._segments[first : first + len(old)] = [new]


def _last_offset(txn: AbortedTxn) -> int:
    return txn.last_offset


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
