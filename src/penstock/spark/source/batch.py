"""Spark's side of a batch read, and of what a task does in any read. Readers are pickled by Spark,
so they hold values alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.client.client import Client
from penstock.spark.background import Background
from penstock.spark.kernel.columns import decode
from penstock.spark.options import SourceOptions
from penstock.spark.source.lookup import offsets_at, offsets_of, snapshot
from penstock.spark.source.losses import report
from penstock.spark.source.offsets import Range, split
from penstock.spark.source.pushdown import Bounds, bounds_of
from penstock.spark.source.reading import Fetched, RangeReader


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        with Background(self._options.connection) as background:
            return [
                InputPartition(one)
                for one in background.call(lambda client: plan(client, self._options, self._bounds))
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Where nothing is to be read Spark asks for a partition of its own, which has no range."""
        return iter(()) if partition.value is None else read_range(self._options, partition.value)


class FilteringReader(BatchReader):
    """Takes filters that Spark pushes down. They only narrow what is fetched: Spark looks at each
    row still."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._bounds = bounds_of(filters)
        return filters


async def plan(client: Client, options: SourceOptions, bounds: Bounds) -> list[Range]:
    now = await snapshot(client, options, may_be_gone=False)
    isolation = options.fetch.isolation
    start, lost = await offsets_of(
        client, options.starting, "startingOffsets", now, isolation, starting=True
    )
    end, lost_too = await offsets_of(
        client, options.ending, "endingOffsets", now, isolation, starting=False
    )
    report([*lost, *lost_too], fail=options.fail_on_data_loss)
    wanted = [one for one in start if bounds.wants(one)]
    young = (
        await offsets_at(client, dict.fromkeys(wanted, bounds.since_ms), isolation)
        if bounds.since_ms is not None
        else {}
    )
    whole = {
        one: Range(one.topic, now.ids[one.topic], one.partition, start[one], end[one])
        for one in wanted
    }
    narrowed = [bounds.narrow(each, young.get(one)) for one, each in whole.items()]
    return split(narrowed, options.min_partitions, options.max_records_per_partition)


def read_range(options: SourceOptions, one: Range) -> Iterator[pa.RecordBatch]:
    """What a task does: fetches its range, and gives it as columns."""
    with Background(options.connection) as background:
        for fetched in background.iterate(lambda client: aiter(_reader(client, options, one))):
            yield from _columns(fetched, one, headers=options.include_headers)


def _columns(fetched: Fetched, one: Range, *, headers: bool) -> Iterator[pa.RecordBatch]:
    """In pieces, where what was fetched unfolds to much."""
    position, end = fetched.position, min(fetched.next_position, one.end)
    while position < end:
        decoded = decode(
            fetched.records,
            start=position,
            end=end,
            aborted=fetched.aborted,
            headers=headers,
            topic=one.topic,
            partition=one.partition,
        )
        if decoded.batch is not None:
            yield decoded.batch
        position = decoded.next_offset


def _reader(client: Client, options: SourceOptions, one: Range) -> RangeReader:
    fail = options.fail_on_data_loss
    return RangeReader(
        client,
        one,
        options.fetch,
        options.connection.patience_s,
        lambda loss: report([loss], fail=fail),
    )
