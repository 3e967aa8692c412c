"""A log as its readers see it: a sequence of segments, read anywhere by offset or time.

Gives file ranges, not bytes, and is told how far a reader may see. End offsets are exclusive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_TIMESTAMP, TopicPartition
from penstock.log.directory import LogDirectory, guarded
from penstock.log.files import FileRange
from penstock.log.retention import SegmentFacts, expired
from penstock.log.segment import Segment
from penstock.log.txn_index import AbortedTxn


class ReadableLog:
    """The segments of a partition, oldest first; the last one is active."""

    def __init__(
        self,
        partition: TopicPartition,
        directory: LogDirectory,
        segments: list[Segment],
        start_offset: int,
        end_offset: int,
    ) -> None:
        self.partition = partition
        self.directory = directory
        self.segments = segments
        self.start_offset = start_offset
        self.end_offset = end_offset

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @guarded
    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        below: int,
        at_least_one: bool = True,
        at_once: bool = False,
    ) -> FileRange | None:
        """The bytes from the batch that holds an offset on, up to a bound on offsets (exclusive)
        and on bytes.

        The first batch is given whole even if it is larger than max_bytes, or, without
        at_least_one, not at all then; the last may be cut. None where there is nothing to read.
        NotInMemory where it was to be found at once, and cannot.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                (
                    f"offset {offset} of {self.partition} is not in [{self.start_offset}, "
                    f"{self.end_offset}]"
                ),
            )
        below = min(below, self.end_offset)
        number = self._segment_number(offset)
        while offset < below and number < len(self.segments):
            segment = self.segments[number]
            found = segment.find(offset, at_once=at_once)
            if found is not None:
                position, header = found
                if header.size > max_bytes and not at_least_one:
                    return None
                length = min(
                    self._bound(number, below, at_once=at_once) - position,
                    max(max_bytes, header.size),
                )
                return segment.range(position, length) if length > 0 else None
            number += 1
        return None

    def _bound(self, number: int, below: int, *, at_once: bool) -> int:
        """The position in a segment where offsets reach a bound."""
        segment = self.segments[number]
        following = (
            self.segments[number + 1].base_offset
            if number + 1 < len(self.segments)
            else self.end_offset
        )
        if below >= following:
            return segment.size
        found = segment.find(below, at_once=at_once)
        return segment.size if found is None else found[0]

    def _segment_number(self, offset: int) -> int:
        if offset >= self.segments[-1].base_offset:
            return len(self.segments) - 1
        return max(
            bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1, 0
        )

    @guarded
    def expired(self, config: LogConfig, high_watermark: int, now_ms: int) -> int:
        """How many of the oldest segments are too old or too many."""
        ends = [segment.base_offset for segment in self.segments[1:]] + [self.end_offset]
        facts = [
            SegmentFacts(end, segment.size, segment.largest_time)
            for end, segment in zip(ends, self.segments, strict=True)
        ]
        return expired(facts, config, self.start_offset, high_watermark, now_ms)

    @guarded
    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Those that have records between two offsets: what a read_committed consumer must leave
        out."""
        found = []
        for segment in self.segments[self._segment_number(first_offset) :]:
            for txn in segment.txn_index.entries():
                if txn.first_offset < end_offset and txn.last_offset >= first_offset:
                    found.append(txn)
                if txn.last_stable_offset >= end_offset:
                    return found
        return found

    @guarded
    def find_timestamp(self, timestamp: int) -> FileRange | None:
        """The first batch with a record of this time or later; its records tell which."""
        for segment in self.segments:
            found = segment.find_timestamp(timestamp, self.start_offset)
            if found is not None:
                return segment.range(found[0], found[1].size)
        return None

    @guarded
    def find_max_timestamp(self) -> FileRange | None:
        """The first batch that has the largest timestamp in the log."""
        largest = max(self.segments, key=lambda segment: segment.max_timestamp.timestamp)
        if largest.max_timestamp.timestamp == NO_TIMESTAMP:
            return None
        found = largest.find(largest.max_timestamp.offset)
        return None if found is None else largest.range(found[0], found[1].size)

    def segment_end(self, offset: int) -> int:
        """Where the segment that holds the offset before this one ends."""
        number = bisect_left(self.segments, offset, key=lambda segment: segment.base_offset)
        return self.segments[number].base_offset if number < len(self.segments) else self.end_offset

    @guarded
    def batch_start(self, offset: int) -> int:
        """Where the batch that holds an offset begins: a log can be cut there, not in its midst."""
        found = self.segments[self._segment_number(offset)].find(offset)
        return offset if found is None else min(offset, found[1].base_offset)
