"""Samples of the lag of the groups that this broker coordinates, in offsets and in seconds.

The lag in offsets is that of kafka-consumer-groups.sh: the high watermark less the committed
offset. The lag in seconds is the age of the first record that is not committed, by its timestamp.
Where this broker has an in-sync replica of a partition, both come from the replica: the timestamp
is in the header of the batch, which is usually in memory, and is remembered for the offset. The
other partitions are those of `RemoteOffsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import KafkaError, NotInMemory
from penstock.ids import TopicPartition
from penstock.limits import SCRAPED_COLD_RECORDS, SCRAPED_PARTITIONS_PER_STEP
from penstock.metrics.catalogue import coordinators as names
from penstock.metrics.samples import Samples, label_text
from penstock.metrics.turn import Turn
from penstock.node.metrics.remote_offsets import RemoteOffsets
from penstock.node.partition.partition import Partition
from penstock.node.replication.replicas import Replicas
from penstock.node.shards.groups import Groups
from penstock.world import World

if TYPE_CHECKING:
    from penstock.coordinator.offsets.committed import Offsets


class _Position(NamedTuple):
    group_id: str
    partition: TopicPartition
    offset: int


class _TopicLag:
    """The lag of a group in a topic. `seconds` is None if it is not known for any partition."""

    __slots__ = ("offsets", "seconds")

    def __init__(self) -> None:
        self.offsets = 0
        self.seconds: float | None = None


class LagSource:
    def __init__(
        self, world: World, node_id: int, groups: Groups, replicas: Replicas, remote: RemoteOffsets
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._groups = groups
        self._replicas = replicas
        self._remote = remote
        # The timestamps of the first records that are not committed: partition -> offset -> ms.
        self._times: dict[TopicPartition, dict[int, int | None]] = {}
        self._cold_left = 0

    async def __call__(self, samples: Samples, turn: Turn) -> None:
        positions = await self._positions(samples, turn)
        remote: dict[TopicPartition, None] = {}
        for number, position in enumerate(positions, 1):
            if self._replica(position.partition) is None:
                remote[position.partition] = None
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
        ends = await self._remote.refresh(remote) if remote else {}
        times, self._times = self._times, {}
        self._cold_left = SCRAPED_COLD_RECORDS
        topics: dict[tuple[str, str], _TopicLag] = {}
        largest: dict[str, int] = {}
        unknown: dict[str, int] = {}
        for number, position in enumerate(positions, 1):
            group_id, name, offset = position
            partition = self._replica(name)
            end = ends.get(name) if partition is None else partition.high_watermark
            largest.setdefault(group_id, 0)
            unknown.setdefault(group_id, 0)
            if end is None:
                unknown[group_id] += 1
                continue
            lag = max(0, end - offset)
            seconds: float | None = 0.0
            if lag:
                seconds = (
                    self._remote.age_s(name, offset)
                    if partition is None
                    else await self._age_s(partition, name, offset, times)
                )
            self._add(samples, position, lag, seconds, topics)
            largest[group_id] = max(largest[group_id], lag)
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
        for group_id, lag in largest.items():
            samples.add(names.GROUP_LAG_MAX, lag, group_id)
            samples.add(names.GROUP_LAG_UNKNOWN, unknown[group_id], group_id)
        for number, (labels, found) in enumerate(topics.items()):
            if number >= samples.max_series:
                samples.dropped += 1
                continue
            samples.add(names.GROUP_LAG, found.offsets, *labels)
            if found.seconds is not None:
                samples.add(names.GROUP_LAG_SECONDS, found.seconds, *labels)

    @staticmethod
    def _add(
        samples: Samples,
        position: _Position,
        lag: int,
        seconds: float | None,
        topics: dict[tuple[str, str], _TopicLag],
    ) -> None:
        group_id, name, _offset = position
        found = topics.setdefault((group_id, name.topic), _TopicLag())
        found.offsets += lag
        if seconds is not None:
            found.seconds = max(found.seconds or 0.0, seconds)
        if samples.per_partition:
            labels = label_text(
                names.PARTITION_LAG.labels, (group_id, name.topic, str(name.partition))
            )
            samples.add_labelled(names.PARTITION_LAG, lag, labels)
            if seconds is not None:
                samples.add_labelled(names.PARTITION_LAG_SECONDS, seconds, labels)

    async def _positions(self, samples: Samples, turn: Turn) -> list[_Position]:
        """Return the committed offsets of the groups that have series, of existing partitions."""
        offsets: dict[str, Offsets] = {}
        for machine in self._groups.machines:
            offsets |= dict.fromkeys(machine.groups.by_id, machine.groups.offsets)
            await turn.pause()
        positions = []
        for group_id in samples.bounded(offsets):
            for name, committed in offsets[group_id].of_group(group_id).items():
                if self._replicas.exists(name):
                    positions.append(_Position(group_id, name, committed.offset))
            await turn.pause()
        return positions

    def _replica(self, name: TopicPartition) -> Partition | None:
        """Return this broker's replica of a partition if it leads or is in sync."""
        partition = self._replicas.partitions.get(name)
        if partition is None or partition.state is None or partition.directory.failure is not None:
            return None
        in_sync = partition.is_leader or self._node_id in partition.state.isr
        return partition if in_sync else None

    async def _age_s(
        self,
        partition: Partition,
        name: TopicPartition,
        offset: int,
        times: dict[TopicPartition, dict[int, int | None]],
    ) -> float | None:
        known = self._times.setdefault(name, {})
        before = times.get(name, {})
        # Retention may have removed the records after the committed offset.
        first = max(offset, partition.log_start_offset)
        if first in before:
            known[first] = before[first]
        elif first not in known:
            known[first] = await self._timestamp(partition, first)
        timestamp = known[first]
        if timestamp is None or timestamp < 0:
            return None
        return max(0, self._world.clock.now_ms() - timestamp) / 1000

    async def _timestamp(self, partition: Partition, offset: int) -> int | None:
        """Return the timestamp of a record; None if it cannot be read now."""
        for _attempt in range(2):
            try:
                return partition.log.timestamp_at(offset, at_once=True)
            except NotInMemory as missing:
                if self._cold_left <= 0:
                    return None
                self._cold_left -= 1
                await self._world.offload.read(missing.warm)
            except KafkaError:
                return None  # damaged or offline; other measures report it
        return None
