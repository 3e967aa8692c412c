"""Transactions, read from segments that Apache Kafka wrote and a Penstock broker serves.

The log has 25 offsets. A read_committed reader returns 10 of them; the others are aborted, markers,
or belong to an open transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock.ids import NO_UUID
from penstock.spark.options import source_options
from penstock.spark.source.batch import read_range
from penstock.spark.source.ranges import OffsetRange
from penstock.spark.source.stream import StreamReader
from tests.e2e.penstock_process import PenstockProcess
from tests.fixtures.kafka_wrote import partition
from tests.spark.live import create_topics, produce_numbers, session, transplant

# In one pytest-xdist worker, with the shared Spark session.
pytestmark = pytest.mark.xdist_group("spark")

WROTE = partition("transactions")
TOPIC = WROTE.name.topic
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # Without retention, which would delete the old records.
    broker = PenstockProcess(tmp_path_factory.mktemp("broker"), "log.retention.ms=-1")
    try:
        broker.start()
        create_topics(broker.bootstrap, 1, TOPIC)
        # A partition has no files before its first record.
        produce_numbers(broker.bootstrap, TOPIC, 1, 0, 1)
        broker.stop()
        transplant(broker.directory, [WROTE])
        broker.start()
        yield broker.bootstrap
    finally:
        broker.kill()


def expected(
    *, committed: bool, start: int = 0, end: int = WROTE.log_end_offset
) -> list[tuple[int, bytes | None]]:
    records = [read.record for read in WROTE.read() if read.read_committed or not committed]
    return [(record.offset, record.value) for record in records if start <= record.offset < end]


def source(servers: str, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, **options}


def read(options: dict[str, str], start: int, end: int) -> list[tuple[int, bytes | None]]:
    return rows_of(
        read_range(
            source_options(options, streaming=False), OffsetRange(TOPIC, NO_UUID, 0, start, end)
        )
    )


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, bytes | None]]:
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("committed", [True, False])
def test_every_range_equals_what_kafkas_consumer_reads(servers: str, committed: bool) -> None:
    options = source(servers) if committed else source(servers, **UNCOMMITTED)
    last = WROTE.last_stable_offset if committed else WROTE.log_end_offset
    for start in range(last):
        for end in range(start + 1, last + 1):
            assert read(options, start, end) == expected(
                committed=committed, start=start, end=end
            ), (start, end)


@pytest.mark.parametrize("step", [1, 4])
def test_rate_limited_stream_skips_invisible_records(servers: str, step: int) -> None:
    options = source(servers, startingOffsets="earliest", maxOffsetsPerTrigger=str(step))
    reader = StreamReader(source_options(options, streaming=True))
    rows: list[tuple[int, bytes | None]] = []
    start, steps = reader.initialOffset(), 0
    while (end := reader.latestOffset(start, ReadMaxRows(step))) != start:
        for planned in reader.partitions(start, end):
            rows += rows_of(reader.read(planned))
        start, steps = end, steps + 1
    reader.stop()
    assert rows == expected(committed=True)
    assert steps == ceil(WROTE.last_stable_offset / step)


def test_isolation_levels_with_spark(servers: str) -> None:
    frame = session().read.format("penstock").options(**source(servers)).load()
    assert [(row.offset, row.value) for row in frame.orderBy("offset").collect()] == expected(
        committed=True
    )
    uncommitted = session().read.format("penstock").options(**source(servers, **UNCOMMITTED)).load()
    assert uncommitted.count() == len(expected(committed=False))


def test_query_ends_at_the_last_stable_offset(servers: str, tmp_path: Path) -> None:
    offsets: list[int] = []
    rows = (
        session()
        .readStream.format("penstock")
        .options(**source(servers, startingOffsets="earliest", maxOffsetsPerTrigger="8"))
        .load()
    )
    stream = rows.writeStream.foreachBatch(
        lambda batch, _id: offsets.extend(row.offset for row in batch.collect())
    )
    query = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted(offsets) == [offset for offset, _value in expected(committed=True)]
