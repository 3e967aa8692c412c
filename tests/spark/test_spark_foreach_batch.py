"""foreachBatch writes each micro-batch to a topic once, in every output mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import penstock
import penstock.spark
from penstock.spark.options import OptionError
from tests.spark.live import create_topics, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({"num.partitions": "1"}) as cluster:
        yield cluster.bootstrap_servers


def produce(servers: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(60) == 0


def consume(servers: str, topic: str, count: int) -> list[str]:
    """Return the committed values: more than `count` if there are more within two seconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=30) + consumer.consume(1, timeout=2)
    consumer.close()
    return [(message.value() or b"").decode() for message in messages]


def counts(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    source = spark.readStream.format("penstock").option("kafka.bootstrap.servers", servers)
    rows = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    counted = rows.selectExpr("cast(value as string) as word").groupBy("word").count()
    return counted.selectExpr("word as key", "concat(word, ' ', count) as value")


def test_update_mode_writes_changed_rows_and_no_batch_twice(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    create_topics(servers, 1, "words", "word-counts")
    options = {"kafka.bootstrap.servers": servers, "topic": "word-counts"}
    written = penstock.spark.foreach_batch(**options)

    def write_twice(rows: DataFrame, batch_id: int) -> None:
        """As Spark does when it restarts after the write and before the end of the batch."""
        written(rows, batch_id)
        written(rows, batch_id)

    def run() -> None:
        query = (
            counts(spark, servers, "words")
            .writeStream.outputMode("update")
            .foreachBatch(write_twice)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    produce(servers, "words", "a", "b", "a")
    run()
    produce(servers, "words", "a")
    run()
    assert sorted(consume(servers, "word-counts", 3)) == ["a 2", "a 3", "b 1"]


def test_at_least_once_repeats(spark: SparkSession, servers: str) -> None:
    create_topics(servers, 1, "repeated")
    write = penstock.spark.foreach_batch(
        **{"kafka.bootstrap.servers": servers, "topic": "repeated", "delivery": "at-least-once"}
    )
    rows = spark.sql("select 'x' as value")
    write(rows, 0)
    write(rows, 0)
    assert consume(servers, "repeated", 2) == ["x", "x"]


def test_outside_of_a_query_an_id_is_required(spark: SparkSession, servers: str) -> None:
    create_topics(servers, 1, "outside")
    options = {"kafka.bootstrap.servers": servers, "topic": "outside"}
    rows = spark.sql("select 'x' as value")
    with pytest.raises(OptionError, match=r"outside of a streaming query: .* option txnAppId"):
        penstock.spark.foreach_batch(**options)(rows, 0)
    write = penstock.spark.foreach_batch(**options, txnAppId="outside")
    write(rows, 0)
    write(rows, 0)
    write(rows, 1)
    assert consume(servers, "outside", 2) == ["x", "x"]
    with pytest.raises(OptionError, match="remove it from foreach_batch"):
        penstock.spark.foreach_batch(**options, txnVersion="1")
