"""Reading with Spark: rows, filters, resuming from a checkpoint, and errors."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import penstock
from penstock.spark.source.range_groups import TASKS_PER_CORE
from tests.spark.live import create_topics, produce_numbers, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME_MS = 1_700_000_000_123


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({"num.partitions": "2"}) as cluster:
        yield cluster.bootstrap_servers


def produce(servers: str, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": "zstd"})
    for number in values:
        producer.produce(topic, value=str(number), partition=number % 2, timestamp=TIME_MS + number)
    producer.flush()


def read(spark: SparkSession, servers: str, **options: str) -> DataFrame:
    return (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", servers)
        .options(**options)
        .load()
    )


def test_all_columns_of_a_record(spark: SparkSession, servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(
        "rows",
        value=b"v",
        key=b"k",
        partition=0,
        timestamp=TIME_MS,
        headers=[("a", b"1"), ("a", None)],
    )
    producer.produce("rows", value=None, key=None, partition=1, timestamp=TIME_MS)
    producer.flush()
    frame = (
        read(spark, servers, subscribe="rows", includeHeaders="true")
        .selectExpr("*", "unix_millis(timestamp) as ms")
        .drop("timestamp")
    )
    rows = [row.asDict(recursive=True) for row in frame.orderBy("partition").collect()]
    shared: dict[str, Any] = {"topic": "rows", "offset": 0, "timestampType": 0, "ms": TIME_MS}
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert rows == [
        {**shared, "key": b"k", "value": b"v", "partition": 0, "headers": headers},
        {**shared, "key": None, "value": None, "partition": 1, "headers": None},
    ]


def test_selected_columns_and_json_fields(spark: SparkSession, servers: str) -> None:
    """They are equal to what Spark's own functions return."""
    values = [
        b'{"merchant": "a", "cents": 5, "paid": true, "rate": 0.5}',
        b'{"merchant": {"id": 7}, "cents": "5"}',
        b'{"merchant": 1.5}',
        b"no JSON",
        None,
    ]
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce("json", value=value, key=b"k", partition=0)
    producer.flush()
    fields = "merchant STRING, cents BIGINT, paid BOOLEAN, rate DOUBLE"
    parsed = read(spark, servers, subscribe="json", jsonFields=fields)
    assert parsed.columns[-2:] == ["timestampType", "json"]
    names = ("merchant", "cents", "paid", "rate")
    theirs = [f"get_json_object(cast(value as string), '$.{name}') as {name}" for name in names]
    rows = parsed.orderBy("offset").selectExpr("json.*", "value").collect()
    expected = parsed.orderBy("offset").selectExpr(*theirs).collect()
    assert [row.value for row in rows] == values
    assert [row.merchant for row in rows] == [row.merchant for row in expected]
    assert rows[0][:4] == ("a", 5, True, 0.5)
    assert [row[1:4] for row in rows[1:]] == [(None, None, None)] * 4
    selected = read(spark, servers, subscribe="json", jsonFields=fields, columns="json,offset")
    assert selected.columns == ["json", "offset"]
    assert selected.orderBy("offset").first() == ((("a", 5, True, 0.5)), 0)
    assert [row.key for row in read(spark, servers, subscribe="json", columns="key").collect()] == (
        [b"k"] * 5
    )


def test_min_partitions(spark: SparkSession, servers: str) -> None:
    produce(servers, "pieces", range(1000))
    whole = read(spark, servers, subscribe="pieces", minPartitions="5")
    assert whole.rdd.getNumPartitions() in (4, 5, 6)
    assert whole.count() == 1000


def test_filters_of_one_read_do_not_hide_rows_from_others(
    spark: SparkSession, servers: str
) -> None:
    """Spark 4.3 keeps one plan for all reads of a DataFrame."""
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    produce(servers, "filtered", range(1000))
    rows = read(spark, servers, subscribe="filtered")
    assert rows.filter("offset >= 490").count() == 20
    assert rows.count() == 1000
    assert rows.filter("partition = 0").union(rows.filter("partition = 1")).count() == 1000
    low, high = rows.filter("offset < 10"), rows.filter("offset >= 495")
    assert (low.union(high).count(), high.count(), low.count()) == (30, 10, 20)
    assert rows.filter("offset < 3").join(rows.select("offset"), "offset").count() == 12
    with pytest.raises(Exception, match="filterPushdown=true is refused"):
        read(spark, servers, subscribe="filtered", filterPushdown="true").count()


def test_query_that_reads_once_narrows_what_it_reads(spark: SparkSession, servers: str) -> None:
    """As `penstock sql` reads."""
    produce(servers, "narrowed", range(1000))
    once = read(spark, servers, subscribe="narrowed", filterPushdown="read-once")
    selected = once.filter(
        f"partition = 1 and timestamp >= timestamp_millis({TIME_MS + 995})"
    ).selectExpr("cast(value as string) as v")
    assert [row.v for row in selected.collect()] == ["995", "997", "999"]
    assert selected.rdd.getNumPartitions() == 1


def test_wide_topic_is_read_by_few_tasks(spark: SparkSession, servers: str) -> None:
    create_topics(servers, 200, "wide")
    produce_numbers(servers, "wide", 200, 0, 800)
    rows = read(spark, servers, subscribe="wide")
    assert rows.rdd.getNumPartitions() <= (os.cpu_count() or 1) * TASKS_PER_CORE
    values = sorted(int(row.value) for row in rows.select("value").collect())
    assert values == list(range(800))
    bounded = read(spark, servers, subscribe="wide", maxRecordsPerPartition="40")
    assert bounded.rdd.getNumPartitions() >= 20
    assert bounded.count() == 800


@pytest.mark.more
def test_wide_topic_takes_not_much_longer_than_a_narrow_one(
    spark: SparkSession, servers: str
) -> None:
    """At most three times as long on an idle machine (PENSTOCK_DRILL=1); with a range per task it
    was 60 times."""
    times: dict[int, list[float]] = {6: [], 1000: []}
    for partitions in times:
        create_topics(servers, partitions, f"rows-in-{partitions}")
        produce_numbers(servers, f"rows-in-{partitions}", partitions, 0, 20_000)
    for _round in range(4):
        for partitions, taken in times.items():
            started = time.monotonic()
            assert read(spark, servers, subscribe=f"rows-in-{partitions}").count() == 20_000
            taken.append(time.monotonic() - started)
    narrow, wide = (min(taken) for taken in times.values())
    assert wide < (3 if os.environ.get("PENSTOCK_DRILL") else 10) * narrow, times


def run_stream(
    spark: SparkSession, servers: str, checkpoint: Path, **options: str
) -> tuple[list[tuple[int, list[int]]], list[Any]]:
    """Run a query with availableNow. Return id and values of each batch, and the progress."""
    batches: list[tuple[int, list[int]]] = []

    def keep(rows: DataFrame, batch_id: int) -> None:
        batches.append((batch_id, sorted(int(row.value) for row in rows.select("value").collect())))

    stream = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", servers)
        .options(**options)
        .load()
    )
    query = (
        stream.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return [(batch_id, values) for batch_id, values in batches if values], list(
        query.recentProgress
    )


def test_query_resumes_from_its_checkpoint(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    produce(servers, "stream", range(100))
    options = {"subscribe": "stream", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    first, progress = run_stream(spark, servers, tmp_path, **options)
    assert [len(rows) for _id, rows in first] == [60, 40]
    assert sorted(number for _id, rows in first for number in rows) == list(range(100))
    latest = progress[0]["sources"][0]["latestOffset"]
    assert '"#lag": 40' in latest
    assert '"maxOffsetsBehindLatest": "20"' in latest

    produce(servers, "stream", range(100, 130))
    # As if the driver had died before it committed the last batch.
    commits = (tmp_path / "commits").iterdir()
    last = max(int(file.name) for file in commits if file.name.isdecimal())
    for name in (f"{last}", f".{last}.crc"):
        (tmp_path / "commits" / name).unlink(missing_ok=True)
    second, _progress = run_stream(spark, servers, tmp_path, **options)
    assert second == [first[-1], (last + 1, list(range(100, 130)))]


def test_recreated_topic_fails_the_query_or_is_read_from_its_start(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    produce(servers, "lost", range(10))
    run_stream(spark, servers, tmp_path, subscribe="lost", startingOffsets="earliest")
    _delete_topic(servers, "lost")
    produce(servers, "lost", range(6))
    with pytest.raises(
        Exception,
        match=("lost-0: offsets from 5 on cannot be read: the topic was deleted and created again"),
    ):
        run_stream(spark, servers, tmp_path, subscribe="lost")
    batches, _progress = run_stream(
        spark, servers, tmp_path, subscribe="lost", failOnDataLoss="false"
    )
    assert [rows for _id, rows in batches] == [list(range(6))]


def _delete_topic(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "nowhere"}, "topic nowhere does not exist: create it"),
        (
            {
                "subscribe": "rows",
                "kafka.bootstrap.servers": "localhost:1",
                "kafka.default.api.timeout.ms": "2000",
            },
            "check the option kafka.bootstrap.servers",
        ),
        (
            {"subscribe": "rows", "startingOffsets": '{"rows"'},
            "startingOffsets is invalid: it is not valid JSON",
        ),
        ({"subscribe": "rows", "startingOfsets": "earliest"}, "did you mean startingOffsets?"),
    ],
)
def test_errors_give_advice_within_seconds(
    spark: SparkSession, servers: str, options: dict[str, str], message: str
) -> None:
    started = time.monotonic()
    with pytest.raises(Exception, match=re.escape(message)):
        spark.read.format("penstock").options(
            **{"kafka.bootstrap.servers": servers, **options}
        ).load().count()
    assert time.monotonic() - started < 30
