"""How far groups are behind, and where their offsets could be set to. Reads and reckons; commits
nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.groups.admin import Committed, GroupDescription, GroupMember, Groups
from penstock.client.offsets import EARLIEST, LATEST, list_offsets
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition


class PartitionLag(NamedTuple):
    """A member without a partition, and a partition without an offset or a member, have None for
    it."""

    partition: TopicPartition | None
    committed: Committed | None
    end: int | None
    member: GroupMember | None

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
        return sum(one.lag or 0 for one in self.partitions)


async def lag_of(cluster: Cluster, groups: Groups, group_id: str) -> GroupLag:
    """Partitions that members have come first, member by member; then those that nobody has, but
    offsets; as Kafka's tool shows them."""
    group = await groups.describe(group_id)
    committed = await groups.committed(group_id)
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*owners, *committed})
    ends = await _known_ends(cluster, partitions)
    rows = [
        PartitionLag(one, committed.get(one), ends.get(one), owners[one])
        for one in partitions
        if one in owners
    ]
    rows += [
        PartitionLag(None, None, None, member) for member in group.members if not member.assignment
    ]
    rows += [
        PartitionLag(one, committed[one], ends.get(one), None)
        for one in partitions
        if one not in owners
    ]
    return GroupLag(group, tuple(rows))


async def _known_ends(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """A topic may have been deleted since the group read it."""
    existing = {topic.name: len(topic.partitions) for topic in await cluster.topics(None)}
    there = [one for one in partitions if one.partition < existing.get(one.topic, 0)]
    found = await list_offsets(cluster, dict.fromkeys(there, LATEST)) if there else {}
    return {partition: one.offset for partition, one in found.items()}


# Where to set offsets to.


class Earliest(NamedTuple):
    pass


class Latest(NamedTuple):
    pass


class Current(NamedTuple):
    pass


class At(NamedTuple):
    offset: int


class SinceTime(NamedTuple):
    timestamp_ms: int


class Shift(NamedTuple):
    by: int


Target = Earliest | Latest | Current | At | SinceTime | Shift


async def reset_targets(
    cluster: Cluster,
    committed: Mapping[TopicPartition, Committed],
    partitions: Collection[TopicPartition],
    target: Target,
) -> dict[TopicPartition, int]:
    """Where each partition's offset would be set to; never outside of what the partition has."""
    starts = await _offsets(cluster, partitions, EARLIEST)
    ends = await _offsets(cluster, partitions, LATEST)
    match target:
        case Earliest():
            wanted = starts
        case Latest():
            wanted = ends
        case At(offset):
            wanted = dict.fromkeys(partitions, offset)
        case SinceTime(timestamp_ms):
            found = await _offsets(cluster, partitions, timestamp_ms)
            wanted = {one: at if at >= 0 else ends[one] for one, at in found.items()}
        case Current():
            wanted = {
                one: committed[one].offset if one in committed else ends[one] for one in partitions
            }
        case Shift(by):
            missing = sorted(str(one) for one in partitions if one not in committed)
            if missing:
                reason = (
                    f"Cannot shift offset for partition {missing[0]} since there is no "
                    "current committed offset"
                )
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            wanted = {one: committed[one].offset + by for one in partitions}
    return {one: min(max(at, starts[one]), ends[one]) for one, at in wanted.items()}


async def _offsets(
    cluster: Cluster, partitions: Collection[TopicPartition], time: int
) -> dict[TopicPartition, int]:
    return {
        one: found.offset
        for one, found in (await list_offsets(cluster, dict.fromkeys(partitions, time))).items()
    }
