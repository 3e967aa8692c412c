"""The partition of the shard explorer: a log in memory whose commits, refusals and failovers the
walk decides. It has what `node.shards.shard.Shard` uses of a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from penstock.config.topic import LogConfig
from penstock.coordinator.runtime.step import PLAIN, Batch, Record
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.log.log import Appended
from penstock.records.batch import batches
from penstock.records.record import rows_of

# Called with None, or with the error that ended the wait.
Committed = Callable[[KafkaError | None], None]


class _Waiter(NamedTuple):
    end_offset: int
    callback: Committed


class MemoryShardPartition:
    """`records` has one record per offset. Those below `committed` survive a failover."""

    config = LogConfig()
    log_start_offset = 0

    def __init__(self, topic: str) -> None:
        self.topic_partition = TopicPartition(topic, 0)
        self.records: list[Record] = []
        # The end offsets of the batches.
        self.ends: list[int] = []
        self.committed = 0
        self.leader_epoch = 0
        self.is_leader = True
        self.leader = SimpleNamespace(enough_in_sync=True)
        # The error of the next append.
        self.refusal: ErrorCode | None = None
        self._callbacks: dict[Callable[[], None], None] = {}
        self._waiters: list[_Waiter] = []

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    def is_committed(self, end_offset: int) -> bool:
        return end_offset <= self.committed

    def append(self, batch: bytes, *, acks_all: bool, from_client: bool) -> Appended:
        assert acks_all
        assert not from_client
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise KafkaError(refusal, "refused by the explorer")
        base_offset = self.log_end_offset
        for position, header in batches(batch):
            for _offset, _timestamp, key, value, _headers in rows_of(batch, header, position):
                self.records.append(Record(key or b"", value))
        self.ends.append(self.log_end_offset)
        return Appended(base_offset, self.log_end_offset, -1)

    def on_committed(self, end_offset: int, deadline: float, callback: Committed) -> None:
        loop, waiter = asyncio.get_running_loop(), _Waiter(end_offset, callback)
        self._waiters.append(waiter)
        if self.is_committed(end_offset):
            self._complete([waiter], None)
        else:
            loop.call_at(deadline, self._expire, waiter)

    def _expire(self, waiter: _Waiter) -> None:
        self._complete(
            [waiter], KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not committed before the deadline")
        )

    def _complete(self, waiters: list[_Waiter], error: KafkaError | None) -> None:
        for waiter in waiters:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                asyncio.get_running_loop().call_soon(waiter.callback, error)

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks[callback] = None

    def off_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.pop(callback, None)

    def notify(self) -> None:
        for callback in list(self._callbacks):
            callback()

    # What the walk decides

    def uncommitted_ends(self) -> list[int]:
        """Return where the high watermark may be next: batches are replicated whole."""
        return [self.committed, *(end for end in self.ends if end > self.committed)]

    def commit(self, offset: int) -> None:
        """Advance the high watermark."""
        self.committed = max(self.committed, offset)
        self._complete(
            [waiter for waiter in self._waiters if waiter.end_offset <= self.committed], None
        )
        self.notify()

    def fail_over(self, kept: int) -> None:
        """Another broker leads, with the first `kept` records, and then this one again."""
        self.leader_epoch += 1
        del self.records[kept:]
        self.ends = [end for end in self.ends if end <= kept]
        self._complete(
            list(self._waiters), KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "failed over")
        )
        self.notify()


class MemoryLoader:
    """The `ShardLoader` of such a partition: replays the last record of each key."""

    async def load(
        self,
        partition: MemoryShardPartition,
        end_offset: int,
        replay: Callable[[Record, Batch], Any],
        _should_continue: Callable[[], bool],
    ) -> int:
        latest: dict[bytes, Record] = {}
        for record in partition.records[:end_offset]:
            latest.pop(record.key, None)
            latest[record.key] = record
        for record in latest.values():
            if record.value is not None:
                replay(record, PLAIN)
        await asyncio.sleep(0)
        return len(latest)
