"""Consumer lag of groups, and the offsets that a reset would set. Commits nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.admin.groups import (
    GroupAdmin,
    GroupDescription,
    MemberDescription,
    OffsetAndMetadata,
)
from penstock.client.cluster import Cluster
from penstock.client.offsets import EARLIEST, LATEST, list_offsets
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition


class PartitionLag(NamedTuple):
    """One partition or one idle member of a group.

    `partition` is None for a member without partitions. `committed` and `member` are None for a
    partition without a committed offset or owner. `end` is None if the partition was deleted.
    """

    partition: TopicPartition | None
    committed: OffsetAndMetadata | None
    end: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        return (
            None if self.committed is None or self.end is None else self.end - self.committed.offset
        )


@dataclass(frozen=True, slots=True)
class GroupLag:
    group: GroupDescription
    partitions: tuple[PartitionLag, ...]

    @property
    def total(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)


async def group_lag(cluster: Cluster, groups: GroupAdmin, group_id: str) -> GroupLag:
    """Return the lag of every partition of a group, in the order of kafka-consumer-groups.sh.

    Owned partitions come first, then members without partitions, then partitions that have a
    committed offset but no owner.
    """
    group = await groups.describe_group(group_id)
    committed = await groups.fetch_offsets(group_id)
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*owners, *committed})
    ends = await _end_offsets(cluster, partitions)
    rows = [
        PartitionLag(partition, committed.get(partition), ends.get(partition), owners[partition])
        for partition in partitions
        if partition in owners
    ]
    rows += [
        PartitionLag(None, None, None, member) for member in group.members if not member.assignment
    ]
    rows += [
        PartitionLag(partition, committed[partition], ends.get(partition), None)
        for partition in partitions
        if partition not in owners
    ]
    return GroupLag(group, tuple(rows))


async def _end_offsets(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the log end offsets of the partitions that still exist."""
    counts = {topic.name: len(topic.partitions) for topic in await cluster.topics(None)}
    existing = [
        partition
        for partition in partitions
        if partition.partition < counts.get(partition.topic, 0)
    ]
    return await _offsets(cluster, existing, LATEST) if existing else {}


# Reset targets, named after the options of kafka-consumer-groups.sh --reset-offsets.


class ToEarliest(NamedTuple):
    pass


class ToLatest(NamedTuple):
    pass


class ToCurrent(NamedTuple):
    pass


class ToOffset(NamedTuple):
    offset: int


class ToTimestamp(NamedTuple):
    timestamp_ms: int


class ShiftBy(NamedTuple):
    number: int


ResetTarget = ToEarliest | ToLatest | ToCurrent | ToOffset | ToTimestamp | ShiftBy


async def reset_targets(
    cluster: Cluster,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    partitions: Collection[TopicPartition],
    target: ResetTarget,
) -> dict[TopicPartition, int]:
    """Return each partition's new offset, limited to the partition's first and end offsets."""
    starts = await _offsets(cluster, partitions, EARLIEST)
    ends = await _offsets(cluster, partitions, LATEST)
    match target:
        case ToEarliest():
            offsets = starts
        case ToLatest():
            offsets = ends
        case ToOffset(offset):
            offsets = dict.fromkeys(partitions, offset)
        case ToTimestamp(timestamp_ms):
            by_time = await _offsets(cluster, partitions, timestamp_ms)
            offsets = {
                partition: offset if offset >= 0 else ends[partition]
                for partition, offset in by_time.items()
            }
        case ToCurrent():
            offsets = {
                partition: committed[partition].offset
                if partition in committed
                else ends[partition]
                for partition in partitions
            }
        case ShiftBy(number):
            missing = sorted(
                str(partition) for partition in partitions if partition not in committed
            )
            if missing:
                reason = (
                    f"Cannot shift offset for partition {missing[0]} since there is no "
                    "current committed offset"
                )
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            offsets = {partition: committed[partition].offset + number for partition in partitions}
    return {
        partition: min(max(offset, starts[partition]), ends[partition])
        for partition, offset in offsets.items()
    }


async def _offsets(
    cluster: Cluster, partitions: Collection[TopicPartition], time: int
) -> dict[TopicPartition, int]:
    found = await list_offsets(cluster, dict.fromkeys(partitions, time))
    return {partition: at.offset for partition, at in found.items()}
