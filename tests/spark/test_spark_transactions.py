"""Transactions, read from the segments that Apache Kafka wrote: they are put under a broker of
Penstock's, which serves them as they are.

Of its 25 offsets only 10 are shown to read_committed; the others are aborted, markers, or of a
transaction that is still open.
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
from tests.spark.live import create_topics, session, transplant

# One after the other, in one process: Spark has enough to do.
pytestmark = pytest.mark.xdist_group("spark")

WROTE = partition("transactions")
TOPIC = WROTE.name.topic
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # The records are old, and would be deleted.
    broker = PenstockProcess(tmp_path_factory.mktemp("broker"), "log.retention.ms=-1")
    try:
        broker.start()
        create_topics(broker.bootstrap, 1, TOPIC)
        broker.stop()
        transplant(broker.directory, [WROTE])
        broker.start()
        yield broker.bootstrap
    finally:
        broker.kill()


def expected(
    *, committed: bool, start: int = 0, end: int = WROTE.log_end_offset
) -> list[tuple[int, bytes | None]]:
    shown = [one.record for one in WROTE.read() if one.read_committed or not committed]
    return [(one.offset, one.value) for one in shown if start <= one.offset < end]


def given(servers: str, **options: str) -> dict[str, str]:
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
def test_every_range_ends_and_has_what_kafkas_consumer_was_shown(
    servers: str, committed: bool
) -> None:
    options = given(servers) if committed else given(servers, **UNCOMMITTED)
    last = WROTE.last_stable_offset if committed else WROTE.log_end_offset
    for start in range(last):
        for end in range(start + 1, last + 1):
            assert read(options, start, end) == expected(
                committed=committed, start=start, end=end
            ), (start, end)


@pytest.mark.parametrize("step", [1, 4])
def test_a_stream_steps_over_what_is_not_shown(servers: str, step: int) -> None:
    options = given(servers, startingOffsets="earliest", maxOffsetsPerTrigger=str(step))
    reader = StreamReader(source_options(options, streaming=True))
    found: list[tuple[int, bytes | None]] = []
    start, steps = reader.initialOffset(), 0
    while (end := reader.latestOffset(start, ReadMaxRows(step))) != start:
        for one in reader.partitions(start, end):
            found += rows_of(reader.read(one))
        start, steps = end, steps + 1
    reader.stop()
    assert found == expected(committed=True)
    assert steps == ceil(WROTE.last_stable_offset / step)


def test_spark_itself(servers: str) -> None:
    frame = session().read.format("penstock").options(**given(servers)).load()
    assert [(row.offset, row.value) for row in frame.orderBy("offset").collect()] == expected(
        committed=True
    )
    everything = session().read.format("penstock").options(**given(servers, **UNCOMMITTED)).load()
    assert everything.count() == len(expected(committed=False))


def test_a_query_ends_at_the_last_stable_offset(servers: str, tmp_path: Path) -> None:
    found: list[int] = []
    rows = (
        session()
        .readStream.format("penstock")
        .options(**given(servers, startingOffsets="earliest", maxOffsetsPerTrigger="8"))
        .load()
    )
    stream = rows.writeStream.foreachBatch(
        lambda batch, _id: found.extend(row.offset for row in batch.collect())
    )
    query = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted(found) == [offset for offset, _value in expected(committed=True)]
