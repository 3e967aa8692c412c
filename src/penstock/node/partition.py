"""One partition that this node leads: where the walks of produce and fetch meet, at the high watermark.

One replica so far: what is appended is committed at once, or, where flush.messages asks for it, once it is synced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import Buffer, TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.files import FileRange
from penstock.log.leader_epochs import EpochEnd
from penstock.log.log import Appended, Log
from penstock.log.lookup import TimedOffset, offset_for_timestamp, offset_of_max_timestamp
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


class Partition:
    """Append and read are synchronous; only the wait for commit and lookups by time are awaited."""

    def __init__(self, log: Log, world: World, leader_epoch: int, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self.leader_epoch = leader_epoch
        self.high_watermark = log.end_offset
        self._log = log
        self._world = world
        self._spawn = spawn
        self._syncing = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._watchers: dict[Callable[[], None], None] = {}
        self._notice_due = False
        log.producers.advance(self.high_watermark)

    @property
    def topic_partition(self) -> TopicPartition:
        return self._log.partition

    @property
    def log_start_offset(self) -> int:
        return self._log.start_offset

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

    @property
    def config(self) -> LogConfig:
        return self._log.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._log.config = config

    def check_epoch(self, current_leader_epoch: int) -> None:
        """-1 is a client that does not say what it knows."""
        if current_leader_epoch == -1 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            message = f"leader epoch {current_leader_epoch} of {self.topic_partition} is over: it is {self.leader_epoch} now"
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, message)
        message = f"leader epoch {current_leader_epoch} of {self.topic_partition} is not known here yet: it is {self.leader_epoch}"
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)

    # Produce

    def append(self, records: Buffer) -> Appended:
        appended = self._log.append_as_leader(records, self.leader_epoch)
        if self._log.end_offset - self._log.flushing.recovery_point < self.config.flush_messages:
            self._commit(self._log.end_offset)
        elif not self._syncing:
            self._syncing = True
            self._spawn(self._commit_synced())
        return appended

    async def _commit_synced(self) -> None:
        """Appends made meanwhile ride on the next sync. A failed one leaves its waiters to their deadline: the directory is offline."""
        try:
            while self.high_watermark < self._log.end_offset:
                await self._log.flushing.all()
                self._commit(self._log.flushing.recovery_point)
        except KafkaError as error:
            self._fail_waiters(error)
        finally:
            self._syncing = False

    def is_committed(self, end_offset: int) -> bool:
        return end_offset <= self.high_watermark

    async def wait_committed(self, end_offset: int, deadline: float) -> None:
        """The deadline is in seconds of the loop's clock."""
        if self.is_committed(end_offset):
            return
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end_offset, committed))
        try:
            async with asyncio.timeout_at(deadline):
                await committed
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self.topic_partition}: not committed before the deadline") from None

    def _commit(self, offset: int) -> None:
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self._log.producers.advance(offset)
        if self._waiting:
            done = [future for end, future in self._waiting if end <= offset]
            self._waiting = [waiter for waiter in self._waiting if waiter[0] > offset]
            for future in done:
                if not future.done():
                    future.set_result(None)
        self._notice()

    def _fail_waiters(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, []
        for _end, future in waiting:
            if not future.done():
                future.set_exception(error)

    # Fetch

    def read(self, offset: int, max_bytes: int, *, committed_only: bool, at_least_one: bool = True) -> ReadResult:
        stable = self.last_stable_offset
        bound = stable if committed_only else self.high_watermark
        found = self._log.read(offset, max_bytes, below=bound, at_least_one=at_least_one)
        aborted: list[AbortedTransaction] = []
        if committed_only and found is not None:
            aborted = [AbortedTransaction(txn.producer_id, txn.first_offset) for txn in self._log.aborted_transactions(offset, bound)]
        return ReadResult(found, self.high_watermark, stable, self.log_start_offset, aborted)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Called once after the watermark or the log start moved, at most once a turn of the loop."""
        self._watchers[callback] = None

    def off_change(self, callback: Callable[[], None]) -> None:
        self._watchers.pop(callback, None)

    def _notice(self) -> None:
        if self._watchers and not self._notice_due:
            self._notice_due = True
            asyncio.get_running_loop().call_soon(self._tell_watchers)

    def _tell_watchers(self) -> None:
        self._notice_due = False
        for callback in list(self._watchers):
            callback()

    # The rest

    async def offset_for_timestamp(self, timestamp: int) -> TimedOffset | None:
        return await offset_for_timestamp(self._log, self._world, timestamp)

    async def offset_of_max_timestamp(self) -> TimedOffset | None:
        return await offset_of_max_timestamp(self._log, self._world)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self._log.epochs.end_offset_for(epoch, self._log.end_offset)

    def delete_records(self, before_offset: int) -> int:
        """-1 is everything that is committed. Gives the new start of the log."""
        target = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= target <= self.high_watermark:
            message = (
                f"records before {before_offset} of {self.topic_partition} cannot be deleted: its high watermark is {self.high_watermark}"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if self._log.advance_start(target):
            self._notice()
        return self.log_start_offset

    def abandon(self) -> None:
        """The partition is deleted: whoever waits is told."""
        self._fail_waiters(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted"))
        self._notice()
