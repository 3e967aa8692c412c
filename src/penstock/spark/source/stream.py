"""The DataSourceStreamReader, which plans the micro-batches of a streaming query.

Spark calls it in one process on the driver. Tasks read input partitions as in a batch query.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.client.offsets import IsolationLevel
from penstock.ids import TopicPartition
from penstock.spark.options import SourceOptions
from penstock.spark.shared_client import shared_client
from penstock.spark.source.batch import input_partitions, read_group
from penstock.spark.source.byte_limit import byte_limited, bytes_per_offset
from penstock.spark.source.data_loss import DataLoss, report_data_loss
from penstock.spark.source.group_commits import GroupCommits
from penstock.spark.source.offset_reader import read_limit, read_snapshot
from penstock.spark.source.offsets import LAG_KEY, METRICS_KEY, Snapshot, SourceOffset
from penstock.spark.source.ranges import (
    batch_ranges,
    next_offset,
    rate_limited,
    resume_offsets,
    split_ranges,
)
from penstock.spark.source.subscription import SubscribedTopics

# Method names are Spark's.
# ruff: noqa: N802


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._topics = SubscribedTopics(options.subscription, options.metadata_max_age_s)
        self._commits: GroupCommits | None = None
        self._initial: dict[str, Any] | None = None
        # With the trigger availableNow: the offsets when the query started, where it ends.
        self._available_now: Snapshot | None = None
        self._snapshot: Snapshot | None = None
        self._batch_end: Mapping[TopicPartition, int] = {}
        # Bytes per offset, as last estimated for maxBytesPerTrigger.
        self._sizes: Mapping[TopicPartition, float] = {}
        # The losses that the last trigger reported.
        self._reported: frozenset[DataLoss] = frozenset()
        self._triggered_at_s = float("-inf")

    def initialOffset(self) -> dict[str, Any]:
        """Spark calls this more than once. The result must not change when records arrive."""
        if self._initial is None:
            # Always reads the cluster: a missing topic is an error and not an empty topic.
            options = self._options
            current = self._read_snapshot(allow_missing=False, refresh=True)
            snapshot = self._available_now or current
            with shared_client(options.connection) as blocking:
                offsets, losses = blocking.call(
                    lambda client: read_limit(
                        client,
                        options.starting,
                        "startingOffsets",
                        snapshot,
                        options.fetch.isolation,
                        starting=True,
                    )
                )
            report_data_loss(losses, fail=options.fail_on_data_loss)
            self._initial = SourceOffset(offsets, snapshot.topic_ids, initial=True).to_json()
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = self._read_snapshot(allow_missing=True, refresh=True)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark's Python API cannot combine limits; `latestOffset` reads all options."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        since = SourceOffset.from_json(start)
        snapshot, resumed = self._resume(since)
        self._snapshot = snapshot
        if not since.initial:
            self._commit_to_group(resumed)
        all_available = isinstance(limit, ReadAllAvailable)
        if not all_available and self._below_minimum(resumed, snapshot.latest):
            return start
        self._batch_end = (
            snapshot.latest if all_available else self._limited(resumed, snapshot.latest)
        )
        self._triggered_at_s = time.monotonic()
        end = next_offset(since, self._batch_end, snapshot)
        recreated = any(snapshot.recreated(since, topic) for topic in snapshot.topic_ids)
        if end.offsets == since.offsets and not recreated and not since.initial:
            return start
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the latest offsets for the query's progress, and how many of them this batch
        leaves unread. Spark 4.3 has no metrics for sources in Python; those of its own Kafka
        connector are therefore here."""
        if self._snapshot is None:
            return None
        latest = self._snapshot.latest
        behind = {
            partition: max(offset - self._batch_end.get(partition, offset), 0)
            for partition, offset in latest.items()
        }
        return {
            **SourceOffset(latest, self._snapshot.topic_ids).to_json(),
            LAG_KEY: sum(behind.values()),
            METRICS_KEY: source_metrics(behind, self._sizes),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        options = self._options
        # Without a snapshot, Spark repeats the last batch of an earlier run, maybe of one with
        # another isolation level. It ends where it ended then, unless the log is shorter now.
        snapshot = self._snapshot or self._read_snapshot(
            allow_missing=True, refresh=True, isolation=IsolationLevel.READ_UNCOMMITTED
        )
        ranges, losses = batch_ranges(
            SourceOffset.from_json(start),
            SourceOffset.from_json(end),
            snapshot,
            options.subscription,
        )
        self._report(losses)
        pieces = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        with shared_client(options.connection) as blocking:
            return input_partitions(blocking, options, pieces)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_group(self._options, partition.value)

    def stop(self) -> None:
        commits = self._commits
        if commits is not None:
            with shared_client(self._options.connection) as blocking:
                blocking.call(lambda _client: commits.close())

    def _resume(self, since: SourceOffset) -> tuple[Snapshot, dict[TopicPartition, int]]:
        """Return the offsets of the cluster, and those at which the query resumes. Before data loss
        is reported, the partitions are fetched again: cached ones may belong to a topic that was
        deleted since."""
        subscription = self._options.subscription
        snapshot = self._available_now or self._read_snapshot(allow_missing=not since.initial)
        resumed, losses = resume_offsets(since, snapshot, subscription)
        if self._available_now is None and not self._reported.issuperset(losses):
            snapshot = self._read_snapshot(allow_missing=not since.initial, refresh=True)
            resumed, losses = resume_offsets(since, snapshot, subscription)
        self._report(losses)
        self._reported = frozenset(losses)
        return snapshot, resumed

    def _report(self, losses: Sequence[DataLoss]) -> None:
        """A loss that lasts, such as that of a deleted topic, is logged once."""
        new = [loss for loss in losses if loss not in self._reported]
        report_data_loss(new, fail=self._options.fail_on_data_loss)

    def _commit_to_group(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets of finished batches to the consumer group of the option groupId.

        It happens here, when Spark asks for the end of the next batch, because Spark calls `commit`
        for a batch only once there is another one: a query that has caught up would appear to lag
        by its last batch.
        """
        if self._options.group_id is None:
            return
        if self._commits is None:
            self._commits = GroupCommits(self._options.group_id)
        commits = self._commits
        if not commits.is_offered(offsets):
            with shared_client(self._options.connection) as blocking:
                blocking.call(lambda client: commits.offer(client, offsets))

    def _limited(
        self, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Apply maxOffsetsPerTrigger and maxBytesPerTrigger."""
        options = self._options
        ends = latest
        if options.max_offsets_per_trigger is not None:
            ends = rate_limited(start, ends, options.max_offsets_per_trigger)
        backlog = {
            partition: start[partition] for partition, end in ends.items() if end > start[partition]
        }
        if options.max_bytes_per_trigger is None or not backlog:
            return ends
        with shared_client(options.connection) as blocking:
            self._sizes = blocking.call(
                lambda client: bytes_per_offset(client, backlog, options.fetch.isolation)
            )
        return byte_limited(start, ends, self._sizes, options.max_bytes_per_trigger)

    def _below_minimum(
        self, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> bool:
        """Return True if minOffsetsPerTrigger delays the batch. With availableNow it never does:
        no more records are coming."""
        minimum = self._options.min_offsets_per_trigger
        if (
            minimum is None
            or self._available_now is not None
            or time.monotonic() - self._triggered_at_s >= self._options.max_trigger_delay_s
        ):
            return False
        return sum(latest[partition] - offset for partition, offset in start.items()) < minimum

    def _read_snapshot(
        self,
        *,
        allow_missing: bool,
        refresh: bool = False,
        isolation: IsolationLevel | None = None,
    ) -> Snapshot:
        with shared_client(self._options.connection) as blocking:
            return blocking.call(
                lambda client: read_snapshot(
                    client,
                    self._options,
                    allow_missing=allow_missing,
                    isolation=isolation,
                    topics=self._topics,
                    refresh=refresh,
                )
            )


def source_metrics(
    behind: Mapping[TopicPartition, int], sizes: Mapping[TopicPartition, float]
) -> dict[str, str]:
    """Return the metrics of Spark's own Kafka connector, with its names. The bytes are known only
    if maxBytesPerTrigger is set."""
    if not behind:
        return {}
    metrics = {
        "minOffsetsBehindLatest": str(min(behind.values())),
        "maxOffsetsBehindLatest": str(max(behind.values())),
        "avgOffsetsBehindLatest": str(sum(behind.values()) / len(behind)),
    }
    if sizes:
        size = sum(count * sizes.get(partition, 0.0) for partition, count in behind.items())
        metrics["estimatedTotalBytesBehindLatest"] = str(round(size))
    return metrics
