"""The Spark driver of the crash matrix: copies a topic to another through the sink under test.

    python -m tests.spark.crash_job SETTINGS

SETTINGS is a JSON object of `Settings`. The process runs until the query fails or is killed; with
`drain` until all input is read.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import penstock.spark
from tests.spark.crash_source import CrashDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Settings:
    servers: str
    source: str
    sink: str
    checkpoint: str
    faults: str
    # Further options of the sink: delivery, sinkName and others.
    options: dict[str, str] = field(default_factory=dict)
    rows_per_batch: int = 900
    # Drops duplicate keys, which keeps them in Spark's state store.
    stateful: bool = False
    # Ends when all rows are read.
    drain: bool = False
    master: str = "local[2,4]"
    conf: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def start_query(spark: SparkSession, settings: Settings) -> StreamingQuery:
    spark.dataSource.register(CrashDataSource)
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", settings.servers)
        .option("subscribe", settings.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings.rows_per_batch)
        .load()
        .select("key", "value")
    )
    trigger = {"availableNow": True} if settings.drain else {"processingTime": "0 seconds"}
    return (
        (rows.dropDuplicates(["key"]) if settings.stateful else rows)
        .writeStream.format(CrashDataSource.name())
        .option("kafka.bootstrap.servers", settings.servers)
        .option("topic", settings.sink)
        .option("checkpointLocation", settings.checkpoint)
        .option("faults", settings.faults)
        .options(**settings.options)
        .trigger(**trigger)
        .start()
    )


def main(settings: Settings) -> None:
    conf = {
        "spark.master": settings.master,
        "spark.sql.shuffle.partitions": 2,
        # Many Arrow batches a task, so that a fault can happen between two of them.
        "spark.sql.execution.arrow.maxRecordsPerBatch": 50,
        **settings.conf,
    }
    start_query(penstock.spark.session(**conf), settings).awaitTermination()


if __name__ == "__main__":
    main(Settings(**json.loads(sys.argv[1])))
