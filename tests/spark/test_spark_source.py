"""Reading with Spark itself: rows, restarts from a checkpoint, and what a user sees of errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import penstock
from tests.spark.live import session

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


def test_rows(spark: SparkSession, servers: str) -> None:
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
    found = (
        read(spark, servers, subscribe="rows", includeHeaders="true")
        .selectExpr("*", "unix_millis(timestamp) as ms")
        .drop("timestamp")
    )
    rows = [row.asDict(recursive=True) for row in found.orderBy("partition").collect()]
    same: dict[str, Any] = {"topic": "rows", "offset": 0, "timestampType": 0, "ms": TIME_MS}
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert rows == [
        {**same, "key": b"k", "value": b"v", "partition": 0, "headers": headers},
        {**same, "key": None, "value": None, "partition": 1, "headers": None},
    ]


def test_a_batch_in_pieces_and_filters_that_are_pushed_down(
    spark: SparkSession, servers: str
) -> None:
    produce(servers, "pieces", range(1000))
    whole = read(spark, servers, subscribe="pieces", minPartitions="5")
    assert whole.rdd.getNumPartitions() in (4, 5, 6)
    assert whole.filter("offset >= 490").count() == 20
    assert whole.count() == 1000, "a filter of one use must not narrow another"
    once = read(spark, servers, subscribe="pieces", filterPushdown="true")
    found = once.filter(
        f"partition = 1 and timestamp >= timestamp_millis({TIME_MS + 995})"
    ).selectExpr("cast(value as string) as v")
    assert [row.v for row in found.collect()] == ["995", "997", "999"]


def run_stream(
    spark: SparkSession, servers: str, checkpoint: Path, **options: str
) -> tuple[list[tuple[int, list[int]]], list[Any]]:
    """What each batch had, and the progress of each."""
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
    return [one for one in batches if one[1]], list(query.recentProgress)


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    produce(servers, "stream", range(100))
    options = {"subscribe": "stream", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    first, progress = run_stream(spark, servers, tmp_path, **options)
    assert [len(rows) for _id, rows in first] == [60, 40]
    assert sorted(number for _id, rows in first for number in rows) == list(range(100))
    assert '"#lag": 40' in progress[0]["sources"][0]["latestOffset"]

    produce(servers, "stream", range(100, 130))
    # As if the driver had died before it noted that the last batch was done.
    last = max(int(one.name) for one in (tmp_path / "commits").iterdir() if one.name.isdecimal())
    for name in (f"{last}", f".{last}.crc"):
        (tmp_path / "commits" / name).unlink(missing_ok=True)
    second, _progress = run_stream(spark, servers, tmp_path, **options)
    assert second == [first[-1], (last + 1, list(range(100, 130)))]


def test_a_stream_tells_of_lost_data(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    produce(servers, "lost", range(10))
    run_stream(spark, servers, tmp_path, subscribe="lost", startingOffsets="earliest")
    _delete_topic(servers, "lost")
    produce(servers, "lost", range(6))
    with pytest.raises(
        Exception,
        match=("lost-0: offsets from 5 on cannot be read: the topic was deleted and created again"),
    ):
        run_stream(spark, servers, tmp_path, subscribe="lost")
    found, _progress = run_stream(
        spark, servers, tmp_path, subscribe="lost", failOnDataLoss="false"
    )
    assert [rows for _id, rows in found] == [list(range(6))]


def _delete_topic(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "nowhere"}, "topic nowhere does not exist: create it"),
        (
            {"subscribe": "rows", "kafka.bootstrap.servers": "localhost:1"},
            "check the option kafka.bootstrap.servers",
        ),
        (
            {"subscribe": "rows", "startingOffsets": '{"rows"'},
            "startingOffsets is invalid: it is not valid JSON",
        ),
        ({"subscribe": "rows", "startingOfsets": "earliest"}, "did you mean startingOffsets?"),
    ],
)
def test_errors_say_what_to_do_within_seconds(
    spark: SparkSession, servers: str, options: dict[str, str], says: str
) -> None:
    started = time.monotonic()
    with pytest.raises(Exception, match=says.replace("?", r"\?")):
        spark.read.format("penstock").options(
            **{"kafka.bootstrap.servers": servers, **options}
        ).load().count()
    assert time.monotonic() - started < 30
