"""The DataSourceReader of batch queries, and the task that reads offset ranges.

Spark pickles readers, so they hold values only.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.client.client import Client
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.kernel.columns import decode
from penstock.spark.options import SourceOptions
from penstock.spark.options.columns import JSON_COLUMN, ColumnOptions
from penstock.spark.shared_client import shared_client
from penstock.spark.source.data_loss import DataLoss, report_data_loss
from penstock.spark.source.fetch_messages import FetchedBatches
from penstock.spark.source.fetcher import RangesFetcher
from penstock.spark.source.json_fields import JsonFields
from penstock.spark.source.offset_reader import list_offsets, read_limit, read_snapshot
from penstock.spark.source.pushdown import FilterBounds, filter_bounds
from penstock.spark.source.range_groups import RangeGroup, group_ranges, task_count
from penstock.spark.source.ranges import OffsetRange, split_ranges

# Arrow batches with fewer rows and bytes are combined. Spark takes longer for a batch than for its
# rows if they are fewer.
_SMALL_BATCH_ROWS = 10_000
_SMALL_BATCH_BYTES = 1024 * 1024


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._bounds = FilterBounds()

    def partitions(self) -> list[InputPartition]:
        with shared_client(self._options.connection) as blocking:
            ranges = blocking.call(lambda client: plan(client, self._options, self._bounds))
            return input_partitions(blocking, self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """For a plan without partitions, Spark reads one partition whose value is None."""
        return iter(()) if partition.value is None else read_group(self._options, partition.value)


class FilteringBatchReader(BatchReader):
    """Accepts the filters that Spark pushes down and returns all of them: they only narrow what is
    fetched, and Spark still applies them to each row."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._bounds = filter_bounds(filters)
        return filters


async def plan(client: Client, options: SourceOptions, bounds: FilterBounds) -> list[OffsetRange]:
    """Return the offset ranges of a batch query."""
    snapshot = await read_snapshot(client, options, allow_missing=False)
    isolation = options.fetch.isolation
    start, lost_at_start = await read_limit(
        client, options.starting, "startingOffsets", snapshot, isolation, starting=True
    )
    end, lost_at_end = await read_limit(
        client, options.ending, "endingOffsets", snapshot, isolation, starting=False
    )
    report_data_loss([*lost_at_start, *lost_at_end], fail=options.fail_on_data_loss)
    included = [partition for partition in start if bounds.includes(partition)]
    by_timestamp = (
        await list_offsets(client, dict.fromkeys(included, bounds.min_timestamp_ms), isolation)
        if bounds.min_timestamp_ms is not None
        else {}
    )
    narrowed = [
        bounds.narrow(
            OffsetRange(
                partition.topic,
                snapshot.topic_ids[partition.topic],
                partition.partition,
                start[partition],
                end[partition],
            ),
            by_timestamp.get(partition),
        )
        for partition in included
    ]
    return split_ranges(narrowed, options.min_partitions, options.max_records_per_partition)


def input_partitions(
    blocking: BlockingClient, options: SourceOptions, ranges: Sequence[OffsetRange]
) -> list[InputPartition]:
    """Distribute ranges to tasks."""
    tasks = task_count(ranges, _cores(), options.min_partitions)
    known_brokers = blocking.connection_options().known_brokers
    return [
        InputPartition(RangeGroup(group, known_brokers))
        for group in group_ranges(ranges, tasks, options.max_records_per_partition)
    ]


def _cores() -> int:
    """Return the cores that this process may use, on a local master those of all tasks."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_group(options: SourceOptions, group: RangeGroup) -> Iterator[pa.RecordBatch]:
    """Fetch the ranges of a task, as Arrow batches."""
    connection = replace(options.connection, known_brokers=group.known_brokers)
    return read_ranges(replace(options, connection=connection), group.ranges)


def read_range(options: SourceOptions, offset_range: OffsetRange) -> Iterator[pa.RecordBatch]:
    return read_ranges(options, [offset_range])


def read_ranges(options: SourceOptions, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Fetch ranges of different partitions, as Arrow batches. The rows of a partition are in order;
    those of different partitions are mixed."""

    def on_data_loss(loss: DataLoss) -> None:
        report_data_loss([loss], fail=options.fail_on_data_loss)

    def fetch(client: Client) -> AsyncIterator[list[FetchedBatches]]:
        timeout_s = options.connection.api_timeout_s
        return aiter(RangesFetcher(client, ranges, options.fetch, timeout_s, on_data_loss))

    select = _selection(options.columns)
    with shared_client(options.connection) as blocking:
        yield from combine_small(
            select(batch)
            for fetched in blocking.iterate(fetch)
            for each in fetched
            for batch in _decode(each, headers=options.include_headers)
        )


def _selection(columns: ColumnOptions) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return the function that makes the columns of the DataFrame from those of the records."""
    names, json_fields = list(columns.names), JsonFields(columns.json_fields)

    def select(batch: pa.RecordBatch) -> pa.RecordBatch:
        if JSON_COLUMN in names:
            parsed = json_fields.parse(batch.column("value"))
            batch = batch.append_column(JSON_COLUMN, parsed)
        return batch if batch.schema.names == names else batch.select(names)

    return select


def _decode(fetched: FetchedBatches, *, headers: bool) -> Iterator[pa.RecordBatch]:
    """Decode what one Fetch returned, in several Arrow batches if it decompresses to much."""
    offset_range = fetched.offset_range
    position, end = fetched.position, min(fetched.next_position, offset_range.end)
    while position < end:
        decoded = decode(
            fetched.records,
            start=position,
            end=end,
            aborted=fetched.aborted,
            headers=headers,
            topic=offset_range.topic,
            partition=offset_range.partition,
        )
        if decoded.batch is not None:
            yield decoded.batch
        position = decoded.next_offset


def combine_small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine Arrow batches of few rows, in order. Others are passed on without copying."""
    small: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows < _SMALL_BATCH_ROWS and batch.nbytes < _SMALL_BATCH_BYTES:
            small.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows < _SMALL_BATCH_ROWS and size < _SMALL_BATCH_BYTES:
                continue
            batch = None
        yield from _combined(small)
        small, rows, size = [], 0, 0
        if batch is not None:
            yield batch
    yield from _combined(small)


def _combined(batches: Sequence[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    combined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined
