"""A streaming job that tests kill: copies a topic to Parquet and to another topic, a thousand rows
per batch.

`python -m tests.spark.restart_job SERVERS DIRECTORY` resumes from its checkpoints in DIRECTORY and
runs until it is killed. With `drain` it ends when all rows are read, in batches of any size.
"""

from __future__ import annotations

import sys
from pathlib import Path

import penstock.spark

SOURCE, SINK = "restart-in", "restart-out"
ROWS_PER_BATCH = 1_000


def main(servers: str, directory: Path, *, drain: bool) -> None:
    spark = penstock.spark.session(**{"spark.master": "local[2]"})
    source = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", SOURCE)
    )
    limited = source if drain else source.option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
    rows = limited.option("startingOffsets", "earliest").load()
    table = (
        rows.selectExpr("cast(value as string) as value")
        .writeStream.format("parquet")
        .option("path", str(directory / "table"))
    )
    topic = (
        rows.select("value")
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", SINK)
    )
    trigger = {"availableNow": True} if drain else {"processingTime": "0 seconds"}
    queries = [
        writer.option("checkpointLocation", str(checkpoint(directory, name)))
        .trigger(**trigger)
        .start()
        for name, writer in (("table", table), ("topic", topic))
    ]
    if not drain:
        spark.streams.awaitAnyTermination()
    for query in queries:
        query.awaitTermination()


def checkpoint(directory: Path, query: str) -> Path:
    return directory / f"checkpoint-{query}"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), drain="drain" in sys.argv)
