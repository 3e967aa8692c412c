"""Committed offsets by group and partition. PURE: one table, changed by records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.ids import NO_LEADER_EPOCH, NO_TIMESTAMP, NO_UUID, TopicPartition
from penstock.protocol.internal.classic_group_records import (
    LegacyOffsetCommitValue,
    OffsetCommitValue,
)


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # -1: when the group's retention says so. Old clients said it themselves.
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
        # Offsets of transactions that have not ended, by producer id. Nothing fills it yet: records
        # that carry a producer id are ignored.
        self.pending: dict[int, dict[str, dict[TopicPartition, Committed]]] = {}

    def put(self, group_id: str, partition: TopicPartition, committed: Committed) -> None:
        self._by_group.setdefault(group_id, {})[partition] = committed

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        of_group = self._by_group.get(group_id)
        if of_group is None:
            return
        of_group.pop(partition, None)
        if not of_group:
            del self._by_group[group_id]

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
        """Whether a transaction that has not ended would change it."""
        return any(
            partition in of_groups.get(group_id, _NONE) for of_groups in self.pending.values()
        )

    def is_in_transaction(self, group_id: str) -> bool:
        return any(group_id in of_groups for of_groups in self.pending.values())


_NONE: Mapping[TopicPartition, Committed] = {}
