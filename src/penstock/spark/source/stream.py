"""The DataSourceStreamReader, which plans the micro-batches of a streaming query.

Spark calls it in one process on the driver. Tasks read input partitions as in a batch query.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.client.admin.groups import OffsetAndMetadata
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.options import SourceOptions
from penstock.spark.source.batch import read_range
from penstock.spark.source.data_loss import report_data_loss
from penstock.spark.source.offset_reader import read_limit, read_snapshot
from penstock.spark.source.offsets import LAG_KEY, Snapshot, SourceOffset
from penstock.spark.source.ranges import batch_ranges, rate_limited, resume_offsets, split_ranges

logger = logging.getLogger(__name__)

# Method names are Spark's.
# ruff: noqa: N802


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: BlockingClient | None = None
        self._initial: dict[str, Any] | None = None
        # With the trigger availableNow: the offsets when the query started, where it ends.
        self._available_now: Snapshot | None = None
        self._snapshot: Snapshot | None = None
        self._batch_end: Mapping[TopicPartition, int] = {}
        self._committed: Mapping[TopicPartition, int] = {}
        self._triggered_at_s = float("-inf")

    def initialOffset(self) -> dict[str, Any]:
        """Spark calls this more than once. The result must not change when records arrive."""
        if self._initial is None:
            # Always reads the cluster: a missing topic is an error and not an empty topic.
            options, current = self._options, self._read_snapshot(allow_missing=False)
            snapshot = self._available_now or current
            offsets, losses = self._connected().call(
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
        self._available_now = self._read_snapshot(allow_missing=True)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark's Python API cannot combine two limits; `latestOffset` reads both options."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        since = SourceOffset.from_json(start)
        snapshot = self._available_now or self._read_snapshot(allow_missing=not since.initial)
        self._snapshot = snapshot
        resumed, losses = resume_offsets(since, snapshot)
        report_data_loss(losses, fail=self._options.fail_on_data_loss)
        if not since.initial:
            self._commit_to_group(resumed)
        all_available = isinstance(limit, ReadAllAvailable)
        if not all_available and self._below_minimum(resumed, snapshot.latest):
            return start
        max_offsets = self._options.max_offsets_per_trigger
        self._batch_end = (
            snapshot.latest
            if all_available or max_offsets is None
            else rate_limited(resumed, snapshot.latest, max_offsets)
        )
        self._triggered_at_s = time.monotonic()
        if self._batch_end == since.offsets and not losses and not since.initial:
            return start
        return SourceOffset(
            self._batch_end,
            snapshot.topic_ids,
            first_batch_start=since.offsets if since.initial else None,
        ).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the latest offsets for the query's progress, and how many of them this batch
        leaves unread."""
        if self._snapshot is None:
            return None
        latest = self._snapshot.latest
        lag = sum(
            max(offset - self._batch_end.get(partition, offset), 0)
            for partition, offset in latest.items()
        )
        return {**SourceOffset(latest, self._snapshot.topic_ids).to_json(), LAG_KEY: lag}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        snapshot = self._snapshot or self._read_snapshot(allow_missing=True)
        ranges, losses = batch_ranges(
            SourceOffset.from_json(start), SourceOffset.from_json(end), snapshot
        )
        report_data_loss(losses, fail=self._options.fail_on_data_loss)
        options = self._options
        return [
            InputPartition(offset_range)
            for offset_range in split_ranges(
                ranges, options.min_partitions, options.max_records_per_partition
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.value)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _commit_to_group(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets of finished batches to the consumer group of the option groupId.

        The query resumes from Spark's checkpoint; the commit only lets tools show its lag, and a
        failed commit is repeated with the next batch. It happens here, when Spark asks for the end
        of the next batch, because Spark calls `commit` for a batch only once there is another one:
        a query that has caught up would appear to lag by its last batch.
        """
        group_id = self._options.group_id
        if group_id is None or offsets == self._committed:
            return
        self._committed = offsets
        commits = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        try:
            self._connected().call(lambda client: client.groups.commit_offsets(group_id, commits))
        except KafkaError as error:
            advice = (
                "; the group has members, so set groupId to a group that no consumer joins"
                if error.code is ErrorCode.UNKNOWN_MEMBER_ID
                else ""
            )
            logger.warning(
                "offsets of the query were not committed to group %s: %s%s",
                group_id,
                error,
                advice,
            )

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

    def _read_snapshot(self, *, allow_missing: bool) -> Snapshot:
        return self._connected().call(
            lambda client: read_snapshot(client, self._options, allow_missing=allow_missing)
        )

    def _connected(self) -> BlockingClient:
        if self._client is None:
            self._client = BlockingClient(self._options.connection).open()
        return self._client
