"""Samples of the lag of the groups that this broker coordinates, in offsets and in seconds.

The lag in offsets is that of kafka-consumer-groups.sh: the high watermark less the committed
offset. The lag in seconds is the age of the first record that is not committed, by its timestamp.
Where this broker has an in-sync replica of a partition, both come from the replica: the timestamp
is in the header of the batch (`LocalTimes`). The other partitions are those of `RemoteOffsets`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from penstock.ids import TopicPartition
from penstock.limits import SCRAPED_PARTITIONS_PER_STEP, SCRAPED_SAMPLES_PER_STEP
from penstock.metrics.catalogue import coordinators as names
from penstock.metrics.reads import Reads
from penstock.metrics.samples import Samples, Series, label_text
from penstock.metrics.turn import Turn
from penstock.node.metrics.local_times import LocalTimes, Wanted
from penstock.node.metrics.remote_offsets import RemoteOffsets
from penstock.node.replication.replicas import Replicas
from penstock.node.shards.groups import Groups
from penstock.world import World

if TYPE_CHECKING:
    from penstock.coordinator.offsets.committed import Committed, Offsets


class _TopicLag:
    """The lag of a group in a topic. `seconds` is None if it is not known for any partition."""

    __slots__ = ("offsets", "seconds")

    def __init__(self) -> None:
        self.offsets = 0
        self.seconds: float | None = None


class _GroupLag:
    """The lag of a group. `unknown` counts partitions whose high watermark is not known."""

    __slots__ = ("group_id", "largest", "topics", "unknown")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.largest = 0
        self.unknown = 0
        self.topics: dict[str, _TopicLag] = {}

    def add(self, samples: Samples, name: TopicPartition, lag: int, seconds: float | None) -> None:
        topic = self.topics.get(name.topic)
        if topic is None:
            topic = self.topics[name.topic] = _TopicLag()
        if lag:
            topic.offsets += lag
            self.largest = max(self.largest, lag)
        if seconds is not None and (topic.seconds is None or topic.seconds < seconds):
            topic.seconds = seconds
        if samples.per_partition:
            values = self.group_id, name.topic, str(name.partition)
            labels = label_text(names.PARTITION_LAG.labels, values)
            samples.add_labelled(names.PARTITION_LAG, lag, labels)
            if seconds is not None:
                samples.add_labelled(names.PARTITION_LAG_SECONDS, seconds, labels)


class _Local(NamedTuple):
    """A partition with an in-sync replica in which a group has a lag. `first` is the first record
    that is not committed and has not been removed."""

    group: _GroupLag
    first: Wanted
    lag: int


class _Remote(NamedTuple):
    group: _GroupLag
    name: TopicPartition
    offset: int


class LagSource:
    def __init__(
        self,
        world: World,
        node_id: int,
        groups: Groups,
        replicas: Replicas,
        remote: RemoteOffsets,
        reads: Reads,
    ) -> None:
        self._node_id = node_id
        self._groups = groups
        self._replicas = replicas
        self._remote = remote
        self._local_times = LocalTimes(world.clock, reads)
        self._series = Series()

    async def __call__(self, samples: Samples, turn: Turn) -> None:
        groups, local, remote = await self._positions(samples, turn)
        await self._add_local(samples, turn, local)
        if remote:
            await self._add_remote(samples, turn, remote)
        for number, group in enumerate(groups, 1):
            if group.topics or group.unknown:
                samples.add(names.GROUP_LAG_MAX, group.largest, group.group_id)
                samples.add(names.GROUP_LAG_UNKNOWN, group.unknown, group.group_id)
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
        series = ((group.group_id, *topic) for group in groups for topic in group.topics.items())
        for number, (group_id, topic_name, topic) in enumerate(series):
            if number >= samples.max_series:
                samples.dropped += 1
                continue
            samples.add(names.GROUP_LAG, topic.offsets, group_id, topic_name)
            if topic.seconds is not None:
                samples.add(names.GROUP_LAG_SECONDS, topic.seconds, group_id, topic_name)
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()

    async def _positions(
        self, samples: Samples, turn: Turn
    ) -> tuple[list[_GroupLag], list[_Local], list[_Remote]]:
        """Return the groups that have series, and the committed offsets of existing partitions in
        which a lag is to be looked up. Those without a lag are added."""
        offsets: dict[str, Offsets] = {}
        for machine in self._groups.machines:
            ids = iter(list(machine.groups.by_id))
            while some := dict.fromkeys(
                islice(ids, SCRAPED_SAMPLES_PER_STEP), machine.groups.offsets
            ):
                offsets |= some
                await turn.pause()
        groups: list[_GroupLag] = []
        local: list[_Local] = []
        remote: list[_Remote] = []
        async for group_id in samples.bounded(offsets, self._series, turn):
            group = _GroupLag(group_id)
            groups.append(group)
            # A copy: the group may commit during a pause.
            committed = dict(offsets[group_id].of_group(group_id))
            items = iter(committed.items())
            for _step in range(0, len(committed), SCRAPED_PARTITIONS_PER_STEP):
                step = islice(items, SCRAPED_PARTITIONS_PER_STEP)
                self._add_positions(samples, group, step, local, remote)
                await turn.pause()
        return groups, local, remote

    def _add_positions(
        self,
        samples: Samples,
        group: _GroupLag,
        offsets: Iterable[tuple[TopicPartition, Committed]],
        local: list[_Local],
        remote: list[_Remote],
    ) -> None:
        """The loop has local names, and looks at as few objects as it can: a group may have
        committed offsets of 10,000 partitions, usually without a lag."""
        partitions, node_id = self._replicas.partitions, self._node_id
        is_any_offline = any(each.failure for each in self._replicas.store.directories)
        adds_partitions, added = samples.per_partition, ""
        for name, committed in offsets:
            offset, partition = committed.offset, partitions.get(name)
            state = None if partition is None else partition.state
            if (
                partition is None
                or state is None
                or (state.leader != node_id and node_id not in state.isr)
                or (is_any_offline and partition.directory.failure is not None)
            ):
                # No replica, or one that is not in sync or offline.
                if self._replicas.exists(name):
                    remote.append(_Remote(group, name, offset))
                continue
            end = partition.high_watermark
            if offset < end:
                # Retention may have removed the records after the committed offset.
                start = max(offset, partition.log.start_offset)
                local.append(_Local(group, Wanted(name, partition, start, end), end - offset))
            elif adds_partitions or name[0] != added:
                added = name[0]
                group.add(samples, name, 0, 0.0)

    async def _add_local(self, samples: Samples, turn: Turn, local: list[_Local]) -> None:
        await self._local_times.refresh([each.first for each in local], turn)
        for number, each in enumerate(local, 1):
            age_s = self._local_times.age_s(each.first)
            each.group.add(samples, each.first.name, each.lag, age_s)
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()

    async def _add_remote(self, samples: Samples, turn: Turn, remote: list[_Remote]) -> None:
        wanted: dict[TopicPartition, list[int]] = {}
        for number, each in enumerate(remote, 1):
            wanted.setdefault(each.name, []).append(each.offset)
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
        ends = await self._remote.refresh(wanted, turn)
        for number, (group, name, offset) in enumerate(remote, 1):
            end = ends.get(name)
            if end is None:
                group.unknown += 1
            elif end > offset:
                group.add(samples, name, end - offset, self._remote.age_s(name, offset))
            else:
                group.add(samples, name, 0, 0.0)
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
