"""The exactly-once sink in queries of Spark: restarts, checkpoints, sink names and output modes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.client.client import Client
from penstock.spark.options import sink_options
from penstock.spark.shared_client import shared_client
from tests.spark.exactly_once.sink import Sink
from tests.spark.live import create_topics, produce_numbers, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_numbers = count()
# Makes rows so large that each task writes a transaction of its own.
WIDE = "rpad(cast(value as string), 2000, '.') as value"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


class Copy:
    """A query that copies a topic of two partitions to another one of one partition."""

    def __init__(self, spark: SparkSession, servers: str, checkpoint: Path) -> None:
        number = next(_numbers)
        self.spark, self.servers, self.checkpoint = spark, servers, checkpoint
        self.source, self.sink = f"source-{number}", f"sink-{number}"
        self.produced = 0
        create_topics(servers, 2, self.source)
        create_topics(servers, 1, self.sink)

    def produce(self, rows: int) -> None:
        self.produced = produce_numbers(self.servers, self.source, 2, self.produced, rows)

    def rows(self, column: str = "value", **options: str) -> DataFrame:
        return (
            self.spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
            .selectExpr(column)
        )

    def writer(self, rows: DataFrame, **options: str) -> DataStreamWriter:
        given = {
            "kafka.bootstrap.servers": self.servers,
            "kafka.compression.type": "none",
            "topic": self.sink,
            "checkpointLocation": str(self.checkpoint),
            **options,
        }
        return rows.writeStream.format("penstock").options(**given).trigger(availableNow=True)

    def run(self, rows: DataFrame | None = None, **options: str) -> int:
        """Return the number of rows that Spark passed to the sink."""
        return finish(self.writer(rows or self.rows(), **options))

    def batches(self) -> list[int]:
        """Return the ids of the batches that Spark has committed."""
        commits = self.checkpoint / "commits"
        return sorted(int(file.name) for file in commits.glob("[0-9]*"))

    def forget_commit(self) -> None:
        """Leave the checkpoint as a driver does that dies before it writes its commit log."""
        last = self.batches()[-1]
        for file in (self.checkpoint / "commits").glob(f"*{last}*"):
            file.unlink()

    def settled(self, numbers: list[int] | range) -> bool:
        sink = Sink(self.servers, "none", self.sink)
        return sink.settled([str(number) for number in numbers]) and not self.open_transactions()

    def open_transactions(self) -> list[str]:
        async def listed(client: Client) -> list[str]:
            found = await client.admin.list_transactions(states=["Ongoing"])
            return [
                transaction.transactional_id
                for transactions in found.values()
                for transaction in transactions
            ]

        options = sink_options({"kafka.bootstrap.servers": self.servers})
        with shared_client(options.connection) as blocking:
            return blocking.call(listed)


def finish(writer: DataStreamWriter) -> int:
    query = writer.start()
    assert query.awaitTermination(120)
    return sum(progress.sink.numOutputRows for progress in query.recentProgress)


@pytest.fixture
def copy(spark: SparkSession, servers: str, tmp_path: Path) -> Copy:
    return Copy(spark, servers, tmp_path / "checkpoint")


@pytest.mark.parametrize("column", ["value", WIDE], ids=["small", "large"])
def test_every_row_once_over_restarts(copy: Copy, column: str) -> None:
    copy.produce(900)
    assert copy.run(copy.rows(column, maxOffsetsPerTrigger="450")) == 900
    assert copy.settled(range(900))
    # Spark repeats the last batch, whose rows are written.
    copy.forget_commit()
    assert copy.run(copy.rows(column)) == 450
    assert copy.settled(range(900))
    copy.produce(300)
    assert copy.run(copy.rows(column)) == 300
    assert copy.settled(range(1200))
    assert copy.batches() == [0, 1, 2]


def test_at_least_once_repeats_the_batch(copy: Copy) -> None:
    copy.produce(10)
    copy.run(delivery="at-least-once")
    copy.forget_commit()
    copy.run(delivery="at-least-once")
    assert copy.settled([*range(10), *range(10)])


def test_older_checkpoint_is_refused(copy: Copy, tmp_path: Path) -> None:
    copy.produce(10)
    copy.run()
    backup = shutil.copytree(copy.checkpoint, tmp_path / "backup")
    for _batch in range(2):
        copy.produce(10)
        copy.run()
    shutil.rmtree(copy.checkpoint)
    shutil.copytree(backup, copy.checkpoint)
    with pytest.raises(Exception, match="this is an older checkpoint: batch 1"):
        copy.run()
    assert copy.settled(range(30))


def test_older_checkpoint_whose_next_batch_has_other_offsets_is_refused(
    copy: Copy, tmp_path: Path
) -> None:
    copy.produce(10)
    copy.run()
    backup = shutil.copytree(copy.checkpoint, tmp_path / "backup")
    copy.produce(10)
    copy.run()
    shutil.rmtree(copy.checkpoint)
    shutil.copytree(backup, copy.checkpoint)
    copy.produce(10)
    with pytest.raises(Exception, match="older checkpoint: the offsets of batch 1"):
        copy.run()
    assert copy.batches() == [0]
    assert copy.settled(range(20))


def test_deleted_checkpoint_writes_again(copy: Copy) -> None:
    copy.produce(10)
    copy.run(sinkName="deleted")
    shutil.rmtree(copy.checkpoint)
    copy.run(sinkName="deleted")
    assert copy.settled([*range(10), *range(10)])


def test_two_queries_at_once(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    copies = [Copy(spark, servers, tmp_path / name) for name in ("first", "second")]
    for copy in copies:
        copy.produce(900)
    queries = [copy.writer(copy.rows(WIDE, maxOffsetsPerTrigger="300")).start() for copy in copies]
    for query in queries:
        assert query.awaitTermination(120)
    for copy in copies:
        assert copy.settled(range(900))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sinkName": "a/b"}, "without a slash"),
        ({"checkpointLocation": None}, "set checkpointLocation as an option of this stream"),
    ],
)
def test_refused_streams(
    copy: Copy, spark: SparkSession, options: dict[str, Any], message: str
) -> None:
    copy.produce(1)
    given = {
        "kafka.bootstrap.servers": copy.servers,
        "topic": copy.sink,
        "checkpointLocation": str(copy.checkpoint),
        **options,
    }
    set_ = {name: value for name, value in given.items() if value is not None}
    if "checkpointLocation" not in set_:
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(copy.checkpoint))
    try:
        writer = copy.rows().writeStream.format("penstock").options(**set_)
        with pytest.raises(Exception, match=message):
            finish(writer.trigger(availableNow=True))
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert copy.settled([])


def test_sink_name_where_the_checkpoint_is_no_option(copy: Copy, spark: SparkSession) -> None:
    copy.produce(10)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(copy.checkpoint))
    try:
        options = {
            "kafka.bootstrap.servers": copy.servers,
            "topic": copy.sink,
            "sinkName": "without-checkpoint",
        }
        rows = copy.rows().writeStream.format("penstock").options(**options)
        finish(rows.queryName("without-checkpoint").trigger(availableNow=True))
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert copy.settled(range(10))


def test_complete_mode(copy: Copy) -> None:
    for rows in (10, 20):
        copy.produce(rows)
        counted = copy.rows().groupBy().count().selectExpr("cast(count as string) as value")
        finish(copy.writer(counted).outputMode("complete"))
    assert copy.settled([10, 30])
    copy.forget_commit()
    finish(copy.writer(counted).outputMode("complete"))
    assert copy.settled([10, 30])


def test_batches_without_output(copy: Copy) -> None:
    for _batch in range(2):
        copy.produce(10)
        finish(copy.writer(copy.rows().where("value = '15'")))
    assert copy.batches() == [0, 1]
    assert copy.settled([15])


def test_stateful_query_repeats_its_batch(copy: Copy) -> None:
    """A drained batch must be consumed, or the state stores below the sink do not commit."""
    copy.produce(20)
    finish(copy.writer(copy.rows().dropDuplicates(["value"])))
    copy.forget_commit()
    finish(copy.writer(copy.rows().dropDuplicates(["value"])))
    copy.produced = 10
    copy.produce(20)
    finish(copy.writer(copy.rows().dropDuplicates(["value"])))
    assert copy.settled(range(30))


def test_foreach_batch_writes_each_version_once(copy: Copy, servers: str) -> None:
    other = f"{copy.sink}-other"
    create_topics(servers, 1, other)

    def write(rows: DataFrame, batch_id: int) -> None:
        for topic in (copy.sink, other):
            options = {
                "kafka.bootstrap.servers": servers,
                "topic": topic,
                "txnAppId": "app",
                "txnVersion": str(batch_id),
            }
            rows.write.format("penstock").options(**options).mode("append").save()

    def run() -> None:
        writer = copy.rows().writeStream.foreachBatch(write).trigger(availableNow=True)
        finish(writer.option("checkpointLocation", str(copy.checkpoint)))

    copy.produce(20)
    run()
    copy.forget_commit()
    run()
    assert copy.settled(range(20))
    copy.sink = other
    assert copy.settled(range(20))
