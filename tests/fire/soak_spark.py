"""The Spark query of a soak: copies the numbers of a topic to Parquet files.

    python -m tests.fire.soak_spark SERVERS TOPIC DIRECTORY [drain]

runs until it is killed. With `drain` it reads the rest, writes all numbers to
DIRECTORY/numbers, and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

import penstock.spark


def main(servers: str, topic: str, directory: Path, *, drain: bool) -> None:
    spark = penstock.spark.session(**{"spark.master": "local[1]"})
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    table = str(directory / "table")
    query = (
        rows.selectExpr("cast(trim(cast(value as string)) as long) as number")
        .writeStream.format("parquet")
        .option("path", table)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(**({"availableNow": True} if drain else {"processingTime": "5 seconds"}))
        .start()
    )
    query.awaitTermination()
    numbers = [row.number for row in spark.read.parquet(table).collect()]
    (directory / "numbers").write_text("\n".join(map(str, numbers)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), drain="drain" in sys.argv)
