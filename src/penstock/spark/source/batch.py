"""The DataSourceReader of batch queries, and the task that reads an offset range.

Spark pickles readers, so they hold values only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.client.client import Client
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.kernel.columns import decode
from penstock.spark.options import SourceOptions
from penstock.spark.source.data_loss import DataLoss, report_data_loss
from penstock.spark.source.fetcher import FetchedBatches, RangeFetcher
from penstock.spark.source.offset_reader import list_offsets, read_limit, read_snapshot
from penstock.spark.source.pushdown import FilterBounds, filter_bounds
from penstock.spark.source.ranges import OffsetRange, split_ranges


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._bounds = FilterBounds()

    def partitions(self) -> list[InputPartition]:
        with BlockingClient(self._options.connection) as blocking:
            ranges = blocking.call(lambda client: plan(client, self._options, self._bounds))
        return [InputPartition(offset_range) for offset_range in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """For a plan without partitions, Spark reads one partition whose value is None."""
        return iter(()) if partition.value is None else read_range(self._options, partition.value)


class FilteringBatchReader(BatchReader):
    """Accepts the filters that Spark pushes down and returns all of them: they only narrow what is
    fetched, and Spark still applies them to each row."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._bounds = filter_bounds(filters)
        return filters


async def plan(client: Client, options: SourceOptions, bounds: FilterBounds) -> list[OffsetRange]:
    """Return one offset range per input partition of a batch query."""
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


def read_range(options: SourceOptions, offset_range: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Fetch an offset range in a task, as Arrow batches."""

    def on_data_loss(loss: DataLoss) -> None:
        report_data_loss([loss], fail=options.fail_on_data_loss)

    def fetch(client: Client) -> AsyncIterator[FetchedBatches]:
        timeout_s = options.connection.api_timeout_s
        return aiter(RangeFetcher(client, offset_range, options.fetch, timeout_s, on_data_loss))

    with BlockingClient(options.connection) as blocking:
        for fetched in blocking.iterate(fetch):
            yield from _decode(fetched, offset_range, headers=options.include_headers)


def _decode(
    fetched: FetchedBatches, offset_range: OffsetRange, *, headers: bool
) -> Iterator[pa.RecordBatch]:
    """Decode what one Fetch returned, in several Arrow batches if it decompresses to much."""
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
