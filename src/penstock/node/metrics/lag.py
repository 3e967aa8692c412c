"""Samples of the lag of the groups that this broker coordinates, in offsets and in seconds.

The lag in offsets is that of kafka-consumer-groups.sh: the high watermark less the committed
offset. The lag in seconds is the age of the first record that is not committed, by its timestamp.
Where this broker has an in-sync replica of a partition, both come from the replica: the timestamp
is in the header of the batch (`LocalTimes`). The other partitions are those of `RemoteOffsets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from penstock.ids import TopicPartition
from penstock.limits import SCRAPED_PARTITIONS_PER_STEP, SCRAPED_SAMPLES_PER_STEP
from penstock.metrics.catalogue import coordinators as names
from penstock.metrics.reads import Reads
from penstock.metrics.samples import Samples, Series, label_text
from penstock.metrics.turn import Turn
from penstock.node.metrics.local_times import Firsts, LocalTimes, Wanted
from penstock.node.metrics.positions import Positions
from penstock.node.metrics.remote_offsets import RemoteOffsets
from penstock.node.partition.partition import Partition
from penstock.node.replication.replicas import Replicas
from penstock.node.shards.groups import Groups
from penstock.world import World

if TYPE_CHECKING:
    from penstock.coordinator.offsets.committed import Committed, Offsets

# Committed offsets that a scrape looks at before it checks the time: 0.1 to 0.5 µs each, and 10 µs
# with the series of partitions.
_OFFSETS_PER_STEP = 4 * SCRAPED_PARTITIONS_PER_STEP
_SERIES_PER_STEP = SCRAPED_PARTITIONS_PER_STEP


class _TopicLag:
    """The lag of a group in a topic. `seconds` is None if it is not known for any partition.
    `partitions` counts those with a lag."""

    __slots__ = ("offsets", "partitions", "seconds")

    def __init__(self) -> None:
        self.offsets = 0
        self.partitions = 0
        self.seconds: float | None = None


class _GroupLag:
    """The lag of a group. `local` counts its partitions with an in-sync replica by topic. `former`
    are the first records that the last scrape found, `firsts` those of this one. `unknown` counts
    partitions whose high watermark is not known."""

    __slots__ = ("firsts", "former", "group_id", "largest", "local", "topics", "unknown")

    def __init__(self, group_id: str, local: Mapping[str, int], former: Firsts) -> None:
        self.group_id = group_id
        self.local = local
        self.former = former
        self.firsts: Firsts = {}
        self.largest = 0
        self.unknown = 0
        self.topics: dict[str, _TopicLag] = {}

    def add(self, samples: Samples, name: TopicPartition, lag: int, seconds: float | None) -> None:
        topic = self.topics.get(name[0])
        if topic is None:
            topic = self.topics[name[0]] = _TopicLag()
        if lag:
            topic.offsets += lag
            topic.partitions += 1
            if lag > self.largest:
                self.largest = lag
        if seconds is not None and (topic.seconds is None or topic.seconds < seconds):
            topic.seconds = seconds
        if samples.per_partition:
            values = self.group_id, name.topic, str(name.partition)
            labels = label_text(names.PARTITION_LAG.labels, values)
            samples.add_labelled(names.PARTITION_LAG, lag, labels)
            if seconds is not None:
                samples.add_labelled(names.PARTITION_LAG_SECONDS, seconds, labels)

    def add_local_without_lag(self) -> None:
        """Add the topics that have a partition with an in-sync replica and without a lag. Called
        when all local partitions with a lag are added, and no others."""
        for name, count in self.local.items():
            topic = self.topics.setdefault(name, _TopicLag())
            if topic.seconds is None and topic.partitions < count:
                topic.seconds = 0.0


class _Local(NamedTuple):
    """A partition with an in-sync replica in which a group has a lag. `first` is the first record
    that is not committed and has not been removed; its timestamp is not known yet."""

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
        self._clock = world.clock
        self._groups = groups
        self._replicas = replicas
        self._remote = remote
        self._local_times = LocalTimes(world.clock, reads)
        self._series = Series()
        self._positions = Positions(node_id, replicas)
        # What the last scrape found of each group.
        self._firsts: dict[str, Firsts] = {}

    async def __call__(self, samples: Samples, turn: Turn) -> None:
        groups, local, remote = await self._look_at_groups(samples, turn)
        await self._add_local(samples, turn, local)
        for group in groups:
            group.add_local_without_lag()
        self._firsts = {group.group_id: group.firsts for group in groups if group.firsts}
        if remote:
            await self._add_remote(samples, turn, remote)
        for number, group in enumerate(groups, 1):
            if group.topics or group.unknown:
                labels = label_text(names.GROUP_LAG_MAX.labels, (group.group_id,))
                samples.add_labelled(names.GROUP_LAG_MAX, group.largest, labels)
                samples.add_labelled(names.GROUP_LAG_UNKNOWN, group.unknown, labels)
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
        series = ((group.group_id, *topic) for group in groups for topic in group.topics.items())
        for number, (group_id, topic_name, topic) in enumerate(series):
            if number >= samples.max_series:
                samples.dropped += 1
                continue
            labels = label_text(names.GROUP_LAG.labels, (group_id, topic_name))
            samples.add_labelled(names.GROUP_LAG, topic.offsets, labels)
            if topic.seconds is not None:
                samples.add_labelled(names.GROUP_LAG_SECONDS, topic.seconds, labels)
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()

    async def _look_at_groups(
        self, samples: Samples, turn: Turn
    ) -> tuple[list[_GroupLag], list[_Local], list[_Remote]]:
        """Return the groups that have series, and the committed offsets of existing partitions
        whose lag is to be looked up. The others are added."""
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
        step = _SERIES_PER_STEP if samples.per_partition else _OFFSETS_PER_STEP
        self._positions.begin()
        async for group_id in samples.bounded(offsets, self._series, turn):
            of_group = offsets[group_id].of_group(group_id)
            # Copies: the group may commit during a pause.
            partitions, committed = list(of_group), list(of_group.values())
            positions = await self._positions.of_group(group_id, partitions, turn)
            group = _GroupLag(group_id, positions.local, self._firsts.get(group_id, {}))
            groups.append(group)
            items = zip(partitions, committed, positions.replicas, strict=True)
            for _step in range(0, len(committed), step):
                self._add_offsets(samples, group, islice(items, step), local, remote)
                await turn.pause()
        self._positions.end()
        return groups, local, remote

    def _add_offsets(
        self,
        samples: Samples,
        group: _GroupLag,
        offsets: Iterable[tuple[TopicPartition, Committed, Partition | None]],
        local: list[_Local],
        remote: list[_Remote],
    ) -> None:
        """The loop has local names, and looks at as few objects as it can: a group may have
        committed offsets of 10,000 partitions, usually without a lag."""
        adds_partitions, now_ms = samples.per_partition, self._clock.now_ms()
        former, firsts = group.former, group.firsts
        for name, committed, partition in offsets:
            offset = committed[0]  # of 10,000, the name of the field would take a tenth
            if partition is None:
                if self._replicas.exists(name):
                    remote.append(_Remote(group, name, offset))
                continue
            end = partition.high_watermark
            if offset >= end:
                if adds_partitions:
                    group.add(samples, name, 0, 0.0)
                continue
            # Retention may have removed the records after the committed offset.
            start = partition.log.start_offset
            if start < offset:
                start = offset
            first = former.get(name)
            if first is not None:
                firsts[name] = first
                if first.is_known(start, end):
                    group.add(samples, name, end - offset, first.age_s(now_ms))
                    continue
            local.append(_Local(group, Wanted(firsts, name, partition, start, end), end - offset))

    async def _add_local(self, samples: Samples, turn: Turn, local: list[_Local]) -> None:
        await self._local_times.look_up([each.first for each in local], turn)
        now_ms = self._clock.now_ms()
        for number, each in enumerate(local, 1):
            first = each.first.found
            age_s = None if first is None else first.age_s(now_ms)
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
