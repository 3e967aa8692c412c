"""A streaming job reads equal rows with Spark's Kafka connector and with ours.

Only the format's name differs. The job runs on Penstock and on Apache Kafka, with segments written
by Apache Kafka: every codec, headers, nulls, both timestamp types, transactions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.penstock_process import PenstockProcess
from tests.fixtures.kafka_wrote import Partition, partitions
from tests.java.kafka_node import KafkaNode
from tests.java.spark_connector import both_formats
from tests.spark.live import create_topics, produce_numbers, transplant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java

WROTE = [partition for partition in partitions() if not partition.name.topic.startswith("__")]

# Without this setting both brokers would delete the old records.
KEPT = "log.retention.ms"


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return both_formats()


@pytest.fixture(scope="module", params=["Penstock", "Apache Kafka"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("broker")
    broker = (
        PenstockProcess(directory, f"{KEPT}=-1")
        if request.param == "Penstock"
        else KafkaNode(directory, {KEPT: "-1"})
    )
    try:
        broker.start()
        for topic, count in Counter(partition.name.topic for partition in WROTE).items():
            create_topics(broker.bootstrap, count, topic)
            # A partition has no files before its first record.
            produce_numbers(broker.bootstrap, topic, count, 0, count)
        broker.stop()
        transplant(directory, WROTE)
        broker.start()
        yield broker.bootstrap
    finally:
        broker.kill()


def run(spark: SparkSession, form: str, servers: str, directory: Path) -> list[dict[str, Any]]:
    """Write the rows of all topics to Parquet in batches."""
    source = (
        spark.readStream.format(form)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribePattern", "[^_].*")
    )
    source = (
        source.option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", "400")
    )
    rows = source.option("kafka.isolation.level", "read_committed").load()
    writer = rows.writeStream.format("parquet").option("path", str(directory / form))
    query = (
        writer.option("checkpointLocation", str(directory / f"{form}-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    found = spark.read.parquet(str(directory / form)).orderBy("topic", "partition", "offset")
    return [row.asDict(recursive=True) for row in found.collect()]


def test_both_connectors_read_equal_rows(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    ours, theirs = (run(spark, form, servers, tmp_path) for form in ("penstock", "kafka"))
    assert len(ours) == sum(shown(partition) for partition in WROTE)
    assert ours == theirs


def shown(wrote: Partition) -> int:
    return sum(record.read_committed for record in wrote.read())
