"""A partition's log in memory for the replica explorer, with an unsynced tail.

It has what `node.partition` uses of `log.log.Log` and `log.store.LogStore`. An entry stands for a
batch of one record. Work that takes time (a sync, a truncation) pauses until the walk resumes it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from penstock.config.topic import LogConfig
from penstock.ids import TopicPartition
from penstock.log.leader_epochs import LeaderEpochs
from penstock.log.log import Appended
from penstock.log.producers.state import ProducerStates

# The leader epoch of an entry, and a number that no other entry has.
Entry = tuple[int, int]

PARTITION = TopicPartition("t", 0)
TOPIC_ID = UUID(int=1_000)


class _Pause:
    """Awaited by work that takes time."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class _Flushing:
    def __init__(self, log: MemoryPartitionLog) -> None:
        self._log = log
        self.recovery_point = 0

    async def all(self) -> None:
        end_offset = self._log.end_offset
        await _Pause()
        self.recovery_point = max(self.recovery_point, min(end_offset, self._log.end_offset))


class MemoryPartitionLog:
    partition = PARTITION
    topic_id = TOPIC_ID
    directory = None

    def __init__(self, min_insync: int, *, flushes: bool) -> None:
        config = replace(LogConfig(), min_insync_replicas=min_insync)
        self.config = replace(config, flush_messages=1) if flushes else config
        self.start_offset = 0
        self.entries: list[Entry] = []
        self.epochs = LeaderEpochs()
        # Stays empty: the explorer's producers are not idempotent.
        self.producers = ProducerStates()
        self.flushing = _Flushing(self)

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    def entry(self, offset: int) -> Entry | None:
        index = offset - self.start_offset
        return self.entries[index] if 0 <= index < len(self.entries) else None

    # Appending. The explorer's records are numbers, and a follower's are entries.

    def append_as_leader(
        self,
        records: Any,
        epoch: int,
        *,
        from_client: bool,
        only_verified: bool,
        from_the_first: bool,  # noqa: ARG002 - these records have no producer
    ) -> Appended:
        assert from_client
        assert only_verified
        base_offset = self.end_offset
        self._append([(epoch, number) for number in records])
        return Appended(base_offset, self.end_offset, -1)

    def append_as_follower(self, records: Any) -> None:
        self._append(records)

    def _append(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.epochs.assign(entry[0], self.end_offset)
            self.entries.append(entry)

    # Removing

    def advance_start(self, offset: int) -> bool:
        if offset <= self.start_offset:
            return False
        del self.entries[: offset - self.start_offset]
        self.start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def truncate_to(self, offset: int) -> None:
        self.start_offset = min(self.start_offset, offset)
        del self.entries[offset - self.start_offset :]
        self.epochs.truncate_from_end(offset)
        self.flushing.recovery_point = min(self.flushing.recovery_point, offset)

    def restart_at(self, offset: int) -> None:
        self.entries.clear()
        self.start_offset = self.flushing.recovery_point = offset
        self.epochs = LeaderEpochs()

    # Crashes

    def survivor(self, kept: int | None) -> MemoryPartitionLog:
        """Return the log as the next process finds it. A power loss leaves `kept` of the unsynced
        entries; None if there was none."""
        log = MemoryPartitionLog(self.config.min_insync_replicas, flushes=False)
        log.config = self.config
        log.start_offset = self.start_offset
        log.entries = list(self.entries)
        log.epochs = LeaderEpochs(list(self.epochs.entries))
        log.flushing.recovery_point = self.flushing.recovery_point
        if kept is not None:
            end = max(self.flushing.recovery_point, self.start_offset) + kept
            if end < log.end_offset:
                log.truncate_to(end)
        return log


class MemoryStore:
    """The `LogStore` of one partition: `before_truncation` is called with the new end offset."""

    def __init__(self, log: MemoryPartitionLog, before_truncation: Any) -> None:
        self._log = log
        self._before_truncation = before_truncation

    async def truncate(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._before_truncation(offsets[PARTITION])
        self._log.truncate_to(offsets[PARTITION])
        await _Pause()

    async def restart(self, _partition: TopicPartition, offset: int) -> None:
        self._log.restart_at(offset)
        await _Pause()
