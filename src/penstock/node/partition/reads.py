"""One partition on this node, as its readers see it: how far they may read, and what they are told
of.

Knows nothing of roles: `partition` moves the watermark, and decides who may read what.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.files import FileRange
from penstock.log.leader_epochs import EpochEnd
from penstock.log.log import Log
from penstock.log.lookup import TimedOffset, offset_for_timestamp, offset_of_max_timestamp
from penstock.node.partition.watchers import Callback, Watchers
from penstock.replica.follower import DivergingEpoch
from penstock.world import World


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class ReadResult(NamedTuple):
    """What a reader gets: a range of a file, or None where there is nothing for it yet."""

    range: FileRange | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction]


class ReadablePartition:
    """Reads are synchronous; only lookups by time are awaited."""

    def __init__(self, log: Log, world: World, high_watermark: int) -> None:
        self.high_watermark = max(min(high_watermark, log.end_offset), log.start_offset)
        self._log = log
        self._world = world
        # Readers up to the watermark, and readers up to the log's end.
        self._watchers = Watchers()
        self._follower_watchers = Watchers()
        log.producers.advance(self.high_watermark)

    @property
    def topic_partition(self) -> TopicPartition:
        return self._log.partition

    @property
    def topic_id(self) -> UUID:
        return self._log.topic_id

    @property
    def log_start_offset(self) -> int:
        return self._log.start_offset

    @property
    def earliest_epoch(self) -> int:
        """The leader epoch of the first record; -1 where there never was one."""
        return self._log.epochs.epoch_at(self._log.start_offset)

    @property
    def log_end_offset(self) -> int:
        return self._log.end_offset

    @property
    def last_stable_offset(self) -> int:
        unstable = self._log.producers.first_unstable_offset()
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def size(self) -> int:
        return self._log.size

    @property
    def directory(self) -> LogDirectory:
        return self._log.directory

    # Epochs

    @property
    def last_epoch(self) -> int:
        """Of the last record here: what a follower says of itself when it fetches."""
        return self._log.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self._log.epochs.end_offset_for(epoch, self._log.end_offset)

    def diverging(self, offset: int, last_fetched_epoch: int) -> DivergingEpoch | None:
        """Where a fetcher's log leaves ours, if it says what it fetched last (KIP-595)."""
        if last_fetched_epoch < 0:
            return None
        if last_fetched_epoch == self._log.epochs.latest and offset <= self._log.end_offset:
            return None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the last fetched epoch {last_fetched_epoch} is not in {self.topic_partition}",
            )
        return (
            DivergingEpoch(epoch, end_offset)
            if epoch < last_fetched_epoch or end_offset < offset
            else None
        )

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        committed_only: bool,
        at_least_one: bool = True,
        at_once: bool = False,
    ) -> ReadResult:
        """For consumers: nothing above the watermark. NotInMemory where it was to be found at once,
        and cannot."""
        stable = self.last_stable_offset
        bound = stable if committed_only else self.high_watermark
        found = self._log.read(
            offset, max_bytes, below=bound, at_least_one=at_least_one, at_once=at_once
        )
        aborted: list[AbortedTransaction] = []
        if committed_only and found is not None:
            aborted = [
                AbortedTransaction(txn.producer_id, txn.first_offset)
                for txn in self._log.aborted_transactions(offset, bound)
            ]
        return ReadResult(found, self.high_watermark, stable, self.log_start_offset, aborted)

    def look(self) -> ReadResult:
        """Where the partition is, without anything of it."""
        return ReadResult(
            None, self.high_watermark, self.last_stable_offset, self.log_start_offset, []
        )

    def read_for_follower(
        self, offset: int, max_bytes: int, *, at_least_one: bool, at_once: bool = False
    ) -> ReadResult:
        """For replicas, who were let in by `follower_fetched`: up to the log's end. NotInMemory as
        in `read`."""
        log = self._log
        found = None
        if offset != log.end_offset:
            found = log.read(
                offset, max_bytes, below=log.end_offset, at_least_one=at_least_one, at_once=at_once
            )
        return ReadResult(found, self.high_watermark, self.high_watermark, log.start_offset, [])

    async def offset_for_timestamp(self, timestamp: int) -> TimedOffset | None:
        return await offset_for_timestamp(self._log, self._world, timestamp)

    async def offset_of_max_timestamp(self) -> TimedOffset | None:
        return await offset_of_max_timestamp(self._log, self._world)

    # Being told

    def on_change(self, callback: Callback) -> None:
        """Called after the watermark or the log start moved, or the role changed; at most once a
        turn of the loop."""
        self._watchers.add(callback)

    def on_growth(self, callback: Callback) -> None:
        """As on_change, and when the log's end moved."""
        self._follower_watchers.add(callback)

    def off_change(self, callback: Callback) -> None:
        self._watchers.remove(callback)
        self._follower_watchers.remove(callback)

    def _notice_all(self) -> None:
        self._watchers.notice()
        self._follower_watchers.notice()
