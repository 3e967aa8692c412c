"""Spark's side of a streaming read: plans each batch in one process on the driver; its tasks read
as those of a batch read do."""

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

from penstock.client.groups.admin import Committed
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.spark.background import Background
from penstock.spark.options import SourceOptions
from penstock.spark.source.batch import read_range
from penstock.spark.source.lookup import offsets_of, snapshot
from penstock.spark.source.losses import report
from penstock.spark.source.offsets import LAG, Offsets, Snapshot, beginning, limited, ranges, split

logger = logging.getLogger(__name__)

# Methods have Spark's names.
# ruff: noqa: N802


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._background: Background | None = None
        self._initial: dict[str, Any] | None = None
        # What there was when a run that ends by itself began: it reads no further.
        self._target: Snapshot | None = None
        self._now: Snapshot | None = None
        self._ends: Mapping[TopicPartition, int] = {}
        self._told: Mapping[TopicPartition, int] = {}
        self._triggered_s = float("-inf")

    def initialOffset(self) -> dict[str, Any]:
        """Asked for more than once, and may not change: more may have come meanwhile."""
        if self._initial is None:
            # Asked of the cluster even where it is not needed: a topic that does not exist is an
            # error, and not a topic without records.
            options, now = self._options, self._snapshot(may_be_gone=False)
            now = self._target or now
            at, losses = self._running().call(
                lambda client: offsets_of(
                    client,
                    options.starting,
                    "startingOffsets",
                    now,
                    options.fetch.isolation,
                    starting=True,
                )
            )
            report(losses, fail=options.fail_on_data_loss)
            self._initial = Offsets(at, now.ids, initial=True).to_json()
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._snapshot(may_be_gone=True)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark has no name for both limits at once; `latestOffset` looks at the options itself."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        since = Offsets.from_json(start)
        self._now = now = self._target or self._snapshot(may_be_gone=not since.initial)
        begin, losses = beginning(since, now)
        report(losses, fail=self._options.fail_on_data_loss)
        if not since.initial:
            self._tell_group(begin)
        everything = isinstance(limit, ReadAllAvailable)
        if not everything and self._too_few(begin, now.latest):
            return start
        maximum = self._options.max_offsets_per_trigger
        self._ends = (
            now.latest if everything or maximum is None else limited(begin, now.latest, maximum)
        )
        self._triggered_s = time.monotonic()
        if self._ends == since.at and not losses and not since.initial:
            return start
        return Offsets(self._ends, now.ids, began=since.at if since.initial else None).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: the end of each log, and how many offsets of them are not read
        by this batch."""
        if self._now is None:
            return None
        latest = self._now.latest
        behind = sum(max(end - self._ends.get(one, end), 0) for one, end in latest.items())
        return {**Offsets(latest, self._now.ids).to_json(), LAG: behind}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        now = self._now or self._snapshot(may_be_gone=True)
        found, losses = ranges(Offsets.from_json(start), Offsets.from_json(end), now)
        report(losses, fail=self._options.fail_on_data_loss)
        return [
            InputPartition(one)
            for one in split(
                found, self._options.min_partitions, self._options.max_records_per_partition
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.value)

    def stop(self) -> None:
        if self._background is not None:
            self._background.__exit__(None, None, None)
            self._background = None

    def _tell_group(self, done: Mapping[TopicPartition, int]) -> None:
        """The query goes on from Spark's checkpoint. With groupId the cluster is told as well, so
        that its tools show the query's lag; if that fails, the next batch tells it. Spark asks for
        a batch's end when the one before is done, and calls `commit` only once there is another: a
        query that has caught up would seem to lag behind by its last batch."""
        group_id = self._options.group_id
        if group_id is None or done == self._told:
            return
        self._told = done
        offsets = {one: Committed(at) for one, at in done.items()}
        try:
            self._running().call(lambda client: client.groups.commit(group_id, offsets))
        except KafkaError as error:
            advice = (
                "; it has members: name a group that nobody joins"
                if error.code is ErrorCode.UNKNOWN_MEMBER_ID
                else ""
            )
            logger.warning(
                "the offsets of this query were not committed to group %s: %s%s",
                group_id,
                error,
                advice,
            )

    def _too_few(
        self, begin: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> bool:
        """A run that ends by itself would wait for ever."""
        minimum = self._options.min_offsets_per_trigger
        if (
            minimum is None
            or self._target is not None
            or time.monotonic() - self._triggered_s >= self._options.max_trigger_delay_s
        ):
            return False
        return sum(latest[one] - at for one, at in begin.items()) < minimum

    def _snapshot(self, *, may_be_gone: bool) -> Snapshot:
        return self._running().call(
            lambda client: snapshot(client, self._options, may_be_gone=may_be_gone)
        )

    def _running(self) -> Background:
        if self._background is None:
            self._background = Background(self._options.connection).__enter__()
        return self._background
