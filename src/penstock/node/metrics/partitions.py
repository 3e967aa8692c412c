"""Samples of a broker's partitions: replication, traffic and logs.

One walk over all partitions, some per turn of the event loop. What can be read when a page is asked
for is not counted before, so that an idle partition costs nothing between scrapes.
"""

from __future__ import annotations

from collections import Counter
from math import inf

from penstock.ids import TopicPartition
from penstock.limits import SCRAPED_PARTITIONS_PER_STEP
from penstock.metrics.catalogue import coordinators
from penstock.metrics.catalogue import partitions as names
from penstock.metrics.samples import Samples, label_text
from penstock.metrics.turn import Turn
from penstock.node.fetch.fetches import Fetches
from penstock.node.partition.leader import LeaderRole
from penstock.node.partition.partition import Partition
from penstock.node.replication.replicas import Replicas
from penstock.world import World


class _Totals:
    """What the walk over the partitions adds up."""

    def __init__(self) -> None:
        self.leaders = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self.reassigning = 0
        self.offline = 0
        self.damaged = 0
        self.waiting = 0
        self.open_transactions = 0
        self.max_lag = 0
        self.topic_bytes: Counter[str] = Counter()
        self.directory_bytes: Counter[str] = Counter()


class PartitionSource:
    def __init__(self, world: World, replicas: Replicas, fetches: Fetches) -> None:
        self._world = world
        self._replicas = replicas
        self._fetches = fetches

    async def __call__(self, samples: Samples, turn: Turn) -> None:
        totals = _Totals()
        partitions = list(self._replicas.partitions.items())
        for start in range(0, len(partitions), SCRAPED_PARTITIONS_PER_STEP):
            for name, partition in partitions[start : start + SCRAPED_PARTITIONS_PER_STEP]:
                _add_partition(totals, name, partition)
                if samples.per_partition:
                    _add_series(samples, name, partition)
            await turn.pause()
        self._add_replication(samples, totals, len(partitions))
        self._add_logs(samples, totals)
        await turn.pause()
        self._add_traffic(samples)
        await turn.pause()
        await self._add_volumes(samples)

    def _add_replication(self, samples: Samples, totals: _Totals, count: int) -> None:
        replicas, counts = self._replicas, self._replicas.counts
        add = samples.add
        add(names.PARTITIONS, count)
        add(names.LEADERS, totals.leaders)
        add(names.UNDER_REPLICATED, totals.under_replicated)
        add(names.UNDER_MIN_ISR, totals.under_min_isr)
        add(names.AT_MIN_ISR, totals.at_min_isr)
        add(names.REASSIGNING, totals.reassigning)
        add(names.OFFLINE_REPLICAS, totals.offline + len(replicas.store.damaged))
        add(names.REPLICA_LAG, totals.max_lag)
        add(names.ISR_SHRINKS, counts.isr_shrinks)
        add(names.ISR_EXPANDS, counts.isr_expands)
        add(names.ISR_UPDATES_FAILED, counts.isr_updates_failed)
        add(names.PURGATORY, totals.waiting, "Produce")
        add(names.PURGATORY, self._fetches.delayed_count, "Fetch")
        add(names.FETCH_SESSIONS, len(self._fetches.sessions))
        add(coordinators.OPEN_TRANSACTION_PARTITIONS, totals.open_transactions)
        now = self._world.clock.monotonic()
        throttles = replicas.throttles
        add(names.REPLICATION_THROTTLE, throttles.leader.wait_s(now), "Leader")
        add(names.REPLICATION_THROTTLE, throttles.follower.wait_s(now), "Follower")

    def _add_logs(self, samples: Samples, totals: _Totals) -> None:
        store, add = self._replicas.store, samples.add
        counts = store.due.counts
        for topic in samples.bounded(totals.topic_bytes):
            add(names.TOPIC_LOG_SIZE, totals.topic_bytes[topic], topic)
        for directory in store.directories:
            path, is_offline = directory.path, directory.failure is not None
            add(names.DIRECTORY_OFFLINE, int(is_offline), path)
            add(names.DIRECTORY_LOG_SIZE, totals.directory_bytes[path], path)
        add(names.OFFLINE_DIRECTORIES, len(store.directories) - len(store.online))
        add(names.DAMAGED_LOGS, totals.damaged + len(store.damaged))
        add(names.LOG_RECOVERY_SECONDS, counts.opening_s)
        add(names.LOGS_RECOVERED, counts.recovered_logs)
        samples.add_histogram(names.LOG_FLUSH_SECONDS, counts.flushes)
        add(names.COMPACTIONS, counts.compactions)
        add(names.COMPACTION_SECONDS, counts.compaction_s)
        add(names.COMPACTION_BYTES, counts.compacted_bytes)
        add(names.COMPACTION_RECORDS_REMOVED, counts.removed_records)
        add(names.COMPACTIONS_FAILED, counts.compactions_failed)
        add(names.UNCLEANABLE, len(store.compactions.uncleanable))

    def _add_traffic(self, samples: Samples) -> None:
        counts, add = self._replicas.counts, samples.add
        for topic in samples.bounded(counts.topics):
            traffic = counts.topics[topic]
            add(names.BYTES_IN, traffic.bytes_in, topic)
            add(names.MESSAGES_IN, traffic.messages_in, topic)
            add(names.BYTES_OUT, traffic.bytes_out, topic)
        total = counts.total()
        add(names.BROKER_BYTES_IN, total.bytes_in)
        add(names.BROKER_MESSAGES_IN, total.messages_in)
        add(names.BROKER_BYTES_OUT, total.bytes_out)
        add(names.REPLICATION_BYTES_IN, total.replication_bytes_in)
        add(names.REPLICATION_BYTES_OUT, total.replication_bytes_out)

    async def _add_volumes(self, samples: Samples) -> None:
        """A directory whose disk does not answer has no samples; a thread waits for it."""
        for directory in self._replicas.store.online:
            try:
                volume = await self._world.offload.read(self._world.disk.volume, directory.path)
            except OSError:
                continue
            samples.add(names.DIRECTORY_VOLUME, volume.total_bytes, directory.path, "total")
            samples.add(names.DIRECTORY_VOLUME, volume.free_bytes, directory.path, "free")


def _add_partition(totals: _Totals, name: TopicPartition, partition: Partition) -> None:
    log = partition.log
    if log.is_on_disk:
        size = log.size
        totals.topic_bytes[name.topic] += size
        totals.directory_bytes[log.directory.path] += size
    if log.directory.failure is not None:
        totals.offline += 1
    if log.damage is not None:
        totals.damaged += 1
    role = partition.role
    if not isinstance(role, LeaderRole):
        return
    leader, state = role.leader, partition.state
    in_sync, replicas = len(leader.isr), len(leader.replicas)
    totals.leaders += 1
    if state is not None and (state.adding_replicas or state.removing_replicas):
        # As in Kafka, the replicas before the reassignment count.
        totals.reassigning += 1
        replicas -= len(state.adding_replicas)
    if in_sync < replicas:
        totals.under_replicated += 1
    if in_sync < leader.min_insync:
        totals.under_min_isr += 1
    elif in_sync == leader.min_insync:
        totals.at_min_isr += 1
    if leader.high_watermark < leader.end_offset:
        totals.waiting += role.waiting_count
    if in_sync < replicas or leader.high_watermark < leader.end_offset:
        behind = min((each.end_offset for each in leader.followers.values()), default=inf)
        if behind < leader.end_offset:
            totals.max_lag = max(totals.max_lag, leader.end_offset - max(int(behind), 0))
    unstable = log.producers.unstable.first_offset
    if unstable is not None and unstable < partition.high_watermark:
        totals.open_transactions += 1


def _add_series(samples: Samples, name: TopicPartition, partition: Partition) -> None:
    add, log = samples.add_labelled, partition.log
    labels = label_text(names.LOG_SIZE.labels, (name.topic, str(name.partition)))
    add(names.LOG_SIZE, log.size, labels)
    add(names.LOG_START, log.start_offset, labels)
    add(names.LOG_END, log.end_offset, labels)
    add(names.HIGH_WATERMARK, partition.high_watermark, labels)
    add(names.LOG_SEGMENTS, len(log.segments), labels)
    leader = partition.leader
    if leader is not None:
        add(names.IN_SYNC_REPLICAS, len(leader.isr), labels)
