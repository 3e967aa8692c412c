"""Samples of a broker's partitions: replication, traffic and logs.

One walk over all partitions, some per turn of the event loop. What can be read when a page is asked
for is not counted before, so that an idle partition costs nothing between scrapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from math import inf

from penstock.config.transaction_settings import TRANSACTION_MAX_TIMEOUT_MS
from penstock.limits import LATE_TRANSACTION_MS, SCRAPED_PARTITIONS_PER_STEP
from penstock.log.directory import LogDirectory
from penstock.metrics.catalogue import coordinators
from penstock.metrics.catalogue import partitions as names
from penstock.metrics.reads import Reads
from penstock.metrics.samples import Samples, Series, label_text
from penstock.metrics.turn import Turn
from penstock.node.fetch.fetches import Fetches
from penstock.node.metadata import MetadataView
from penstock.node.partition.counts import TopicTraffic
from penstock.node.partition.leader import LeaderRole
from penstock.node.partition.partition import Partition
from penstock.node.replication.replicas import Replicas
from penstock.world import World

Partitions = Iterable[Partition]

# Partitions that the sums take at a time: 0.4 µs each.
_PER_STEP = 4 * SCRAPED_PARTITIONS_PER_STEP


class _Totals:
    """What the walk over the partitions adds up. A transaction is late if it is open and its last
    record is older than `late_before_ms`."""

    def __init__(self, late_before_ms: int) -> None:
        self.late_before_ms = late_before_ms
        self.leaders = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self.reassigning = 0
        self.offline = 0
        self.damaged = 0
        self.waiting = 0
        self.open_transactions = 0
        self.late_transactions = 0
        self.max_lag = 0
        self.topic_bytes: dict[str, int] = {}
        self.directory_bytes: dict[LogDirectory, int] = {}

    def add(self, partitions: Partitions) -> None:
        """Add partitions. The loop has local names, and looks at as few objects as it can: that of
        10,000 partitions is most of what a scrape costs, and most of it is to get the objects from
        memory."""
        topic_bytes, directory_bytes = self.topic_bytes, self.directory_bytes
        leaders = at_min_isr = 0
        for partition in partitions:
            log, role = partition.log, partition.role
            directory = log.directory
            if directory.failure is not None:
                self.offline += 1
            if log.damage is not None:
                self.damaged += 1
            is_on_disk = log.is_on_disk
            if is_on_disk:
                size, topic = log.segments.size, log.partition[0]
                topic_bytes[topic] = topic_bytes.get(topic, 0) + size
                directory_bytes[directory] = directory_bytes.get(directory, 0) + size
            if role.__class__ is not LeaderRole:
                continue
            leaders += 1
            leader = role.leader
            margin, missing = leader.isr_margin, leader.missing_count
            if leader.is_reassigning:
                # As in Kafka, the replicas before the reassignment count.
                self.reassigning += 1
                if partition.state is not None:
                    missing -= len(partition.state.adding_replicas)
            if not margin:
                at_min_isr += 1
            elif margin < 0:
                self.under_min_isr += 1
            if missing > 0:
                self.under_replicated += 1
            if missing > 0 or partition.high_watermark < log.end_offset:
                self._add_behind(role)
            # A log without files never had a record.
            if is_on_disk:
                unstable = log.producers.unstable.first_offset
                if unstable is not None:
                    if unstable < partition.high_watermark:
                        self.open_transactions += 1
                    oldest_ms = log.producers.oldest_open_ms()
                    if oldest_ms is not None and oldest_ms < self.late_before_ms:
                        self.late_transactions += 1
        self.leaders += leaders
        self.at_min_isr += at_min_isr

    def _add_behind(self, role: LeaderRole) -> None:
        """Add a leader whose followers do not have all records."""
        leader = role.leader
        if leader.high_watermark < leader.end_offset:
            self.waiting += role.waiting_count
        behind = min((each.end_offset for each in leader.followers.values()), default=inf)
        if behind < leader.end_offset:
            self.max_lag = max(self.max_lag, leader.end_offset - max(int(behind), 0))


class PartitionSource:
    def __init__(
        self,
        world: World,
        metadata: MetadataView,
        replicas: Replicas,
        fetches: Fetches,
        reads: Reads,
    ) -> None:
        self._world = world
        self._metadata = metadata
        self._replicas = replicas
        self._fetches = fetches
        self._reads = reads
        self._sizes = Series()
        self._traffic = Series()

    async def __call__(self, samples: Samples, turn: Turn) -> None:
        max_timeout_ms: int = self._metadata.broker_config[TRANSACTION_MAX_TIMEOUT_MS]
        totals = _Totals(self._world.clock.now_ms() - max_timeout_ms - LATE_TRANSACTION_MS)
        # A copy: partitions may come and go during a pause.
        partitions = list(self._replicas.partitions.values())
        walks: list[tuple[int, Callable[[Partitions], None]]] = [(_PER_STEP, totals.add)]
        if samples.per_partition:
            walks.append((SCRAPED_PARTITIONS_PER_STEP, partial(_add_series, samples)))
        for per_step, walk in walks:
            items = iter(partitions)
            for _step in range(0, len(partitions), per_step):
                walk(islice(items, per_step))
                await turn.pause()
        store = self._replicas.store
        if len(store.online) < len(store.directories):
            totals.offline += await self._count_unopened(turn)
        self._add_replication(samples, totals, len(partitions))
        self._add_logs(samples, totals)
        async for topic in samples.bounded(totals.topic_bytes, self._sizes, turn):
            samples.add(names.TOPIC_LOG_SIZE, totals.topic_bytes[topic], topic)
        await self._add_traffic(samples, turn)
        await self._add_volumes(samples)

    async def _count_unopened(self, turn: Turn) -> int:
        """Count the replicas of this broker whose log directory failed before they were opened:
        only the metadata has them."""
        count = 0
        for number, name in enumerate(self._replicas.unopened(), 1):
            count += name is not None
            if number % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
        return count

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
        add(coordinators.LATE_TRANSACTION_PARTITIONS, totals.late_transactions)
        now = self._world.clock.monotonic()
        throttles = replicas.throttles
        for side, throttle in (
            ("Leader", throttles.leader),
            ("Follower", throttles.follower),
            ("AlterLogDirs", throttles.log_dirs),
        ):
            add(names.REPLICATION_THROTTLE, throttle.wait_s(now), side)
            add(names.REPLICATION_THROTTLED_BYTES, throttle.copied, side)
            if throttle.is_set:
                add(names.REPLICATION_THROTTLE_RATE, throttle.rate, side)

    def _add_logs(self, samples: Samples, totals: _Totals) -> None:
        store, add = self._replicas.store, samples.add
        counts = store.due.counts
        for directory in store.directories:
            path, is_offline = directory.path, directory.failure is not None
            add(names.DIRECTORY_OFFLINE, int(is_offline), path)
            add(names.DIRECTORY_LOG_SIZE, totals.directory_bytes.get(directory, 0), path)
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

    async def _add_traffic(self, samples: Samples, turn: Turn) -> None:
        counts, add = self._replicas.counts, samples.add
        # Both at one time: a topic that is deleted during a pause is in one of them.
        topics, total = dict(counts.topics), TopicTraffic()
        total.add(counts.deleted)
        async for topic in samples.bounded(topics, self._traffic, turn):
            traffic = topics[topic]
            add(names.BYTES_IN, traffic.bytes_in, topic)
            add(names.MESSAGES_IN, traffic.messages_in, topic)
            add(names.BYTES_OUT, traffic.bytes_out, topic)
        values = iter(topics.values())
        for _step in range(0, len(topics), SCRAPED_PARTITIONS_PER_STEP):
            for traffic in islice(values, SCRAPED_PARTITIONS_PER_STEP):
                total.add(traffic)
            await turn.pause()
        add(names.BROKER_BYTES_IN, total.bytes_in)
        add(names.BROKER_MESSAGES_IN, total.messages_in)
        add(names.BROKER_BYTES_OUT, total.bytes_out)
        add(names.REPLICATION_BYTES_IN, total.replication_bytes_in)
        add(names.REPLICATION_BYTES_OUT, total.replication_bytes_out)

    async def _add_volumes(self, samples: Samples) -> None:
        """A directory whose disk does not answer has no volume."""
        paths = [directory.path for directory in self._replicas.store.online]
        calls = {path: partial(self._world.disk.volume, path) for path in paths}
        volumes = await self._reads.results(calls)
        for path in paths:
            samples.add(names.DIRECTORY_STALLED, int(self._reads.is_stalled(path)), path)
        for path, volume in volumes.items():
            samples.add(names.DIRECTORY_VOLUME, volume.total_bytes, path, "total")
            samples.add(names.DIRECTORY_VOLUME, volume.free_bytes, path, "free")


def _add_series(samples: Samples, partitions: Partitions) -> None:
    add = samples.add_labelled
    for partition in partitions:
        log, leader = partition.log, partition.leader
        name = log.partition
        labels = label_text(names.LOG_SIZE.labels, (name.topic, str(name.partition)))
        add(names.LOG_SIZE, log.size, labels)
        add(names.LOG_START, log.start_offset, labels)
        add(names.LOG_END, log.end_offset, labels)
        add(names.HIGH_WATERMARK, partition.high_watermark, labels)
        add(names.LOG_SEGMENTS, len(log.segments), labels)
        if leader is not None:
            add(names.IN_SYNC_REPLICAS, len(leader.isr), labels)
