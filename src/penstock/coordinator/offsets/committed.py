"""Committed offsets by group and partition, and those of open transactions. PURE: the table changes
only by replay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.offsets.pending import PendingOffsets
from penstock.ids import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    NO_UUID,
    TopicPartition,
)
from penstock.protocol.internal.classic_group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from penstock.coordinator.groups.table import GroupTable


# To copy this many offsets takes about as long as to look up one.
_COPIED_PER_CHANGE = 8


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # -1: the group's retention decides. OffsetCommit v2 to v4 set an expiry time.
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: UUID = NO_UUID

    def value(self) -> OffsetCommitValue:
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp_ms,
            expire_timestamp=self.expire_timestamp_ms,
            topic_id=self.topic_id,
        )


def committed_from(value: OffsetCommitValue | LegacyOffsetCommitValue) -> Committed:
    if isinstance(value, LegacyOffsetCommitValue):
        return Committed(value.offset, NO_LEADER_EPOCH, value.metadata, value.commit_timestamp)
    return Committed(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


class Offsets:
    __slots__ = ("_by_group", "pending")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, Committed]] = {}
        self.pending = PendingOffsets()

    def put(self, group_id: str, partition: TopicPartition, committed: Committed) -> None:
        self._by_group.setdefault(group_id, {})[partition] = committed

    def put_all(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        if offsets:
            self._by_group.setdefault(group_id, {}).update(offsets)

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        of_group = self._by_group.get(group_id)
        if of_group is None:
            return
        of_group.pop(partition, None)
        if not of_group:
            del self._by_group[group_id]

    def saved(self, group_id: str, partition: TopicPartition) -> Callable[[], None]:
        """Return a call that restores the present offset of a partition, or its absence."""
        committed = self.get(group_id, partition)
        if committed is None:
            return partial(self.remove, group_id, partition)
        return partial(self.put, group_id, partition, committed)

    def saved_transaction(self, producer_id: int) -> Callable[[], None]:
        """Return a call that restores what the end of a producer's transaction changes: the offsets
        of its partitions, and their pending ones. One call for all: there may be many."""
        restores = [
            self._saved_all(group_id, self.pending.of_producer(producer_id, group_id))
            for group_id in self.pending.groups_of(producer_id)
        ]
        restores.append(self.pending.saved_transaction(producer_id))

        def restore() -> None:
            for each in restores:
                each()

        return restore

    def _saved_all(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> Callable[[], None]:
        """Return a call that restores the present offsets of partitions, or their absence."""
        of_group = self.of_group(group_id)
        if len(of_group) <= _COPIED_PER_CHANGE * len(partitions):
            return partial(self._restore_group, group_id, dict(of_group))
        former = [(partition, of_group.get(partition)) for partition in partitions]
        return partial(self._restore_all, group_id, former)

    def _restore_group(self, group_id: str, offsets: dict[TopicPartition, Committed]) -> None:
        if offsets:
            self._by_group[group_id] = offsets
        else:
            self._by_group.pop(group_id, None)

    def _restore_all(
        self, group_id: str, former: Iterable[tuple[TopicPartition, Committed | None]]
    ) -> None:
        for partition, committed in former:
            if committed is None:
                self.remove(group_id, partition)
            else:
                self.put(group_id, partition, committed)

    def get(self, group_id: str, partition: TopicPartition) -> Committed | None:
        return self.of_group(group_id).get(partition)

    def of_group(self, group_id: str) -> Mapping[TopicPartition, Committed]:
        return self._by_group.get(group_id, _NONE)

    def __iter__(self) -> Iterator[tuple[str, TopicPartition]]:
        return (
            (group_id, partition)
            for group_id, of_group in self._by_group.items()
            for partition in of_group
        )

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Return True if an open transaction would change the offset."""
        return self.pending.is_pending(group_id, partition)

    def is_in_transaction(self, group_id: str) -> bool:
        return self.pending.has_group(group_id)

    def known(self, group_id: str, partition: TopicPartition) -> Iterator[Committed]:
        """Return the offset of a partition, and the pending ones that a marker may commit."""
        committed = self.get(group_id, partition)
        if committed is not None:
            yield committed
        yield from self.pending.candidates(group_id, partition)

    def is_known(self, group_id: str, partition: TopicPartition) -> bool:
        """Return True if there is something to delete: an offset, or a pending one."""
        return partition in self.of_group(group_id) or self.is_unstable(group_id, partition)


_NONE: Mapping[TopicPartition, Committed] = {}


def replay_offset(
    groups: GroupTable,
    key: OffsetCommitKey | LegacyOffsetCommitKey,
    value: OffsetCommitValue | LegacyOffsetCommitValue | None,
    producer_id: int = NO_PRODUCER_ID,
) -> None:
    """Apply an offset record; in a transaction its producer id is given. The first offset of an
    unknown group creates a classic group that only commits. A tombstone also deletes the pending
    offsets."""
    offsets, partition = groups.offsets, TopicPartition(key.topic, key.partition)
    if value is None:
        offsets.remove(key.group, partition)
        offsets.pending.remove(key.group, partition)
        return
    _create_if_unknown(groups, key.group)
    if producer_id == NO_PRODUCER_ID:
        offsets.put(key.group, partition, committed_from(value))
        offsets.pending.supersede(key.group, partition)
    else:
        offsets.pending.put(producer_id, key.group, partition, committed_from(value))


def replay_marker(groups: GroupTable, producer_id: int, *, commit: bool) -> None:
    """End a transaction: its pending offsets become the groups', or are dropped."""
    for group_id, offsets in groups.offsets.pending.end(producer_id, commit=commit):
        if offsets:
            _create_if_unknown(groups, group_id)
            groups.offsets.put_all(group_id, offsets)


def _create_if_unknown(groups: GroupTable, group_id: str) -> None:
    if group_id not in groups.by_id:
        groups.by_id[group_id] = ClassicGroup(group_id)
