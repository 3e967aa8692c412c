"""What a pipeline application is: a Python file with one `build`, run by `penstock pipeline run
FILE`.

    from pyspark.sql import DataFrame, functions as F
    from pyspark.sql.streaming import DataStreamWriter
    from penstock.spark.pipeline import Pipeline, parse_json

    FAIL_ON_LATE_ROWS = True                       # optional: a row dropped by a watermark fails
    the run

    def parsed(rows: DataFrame) -> DataFrame:      # steps are plain functions from DataFrame to
    DataFrame
        return parse_json(rows, "id STRING NOT NULL, amount LONG")

    def large(orders: DataFrame) -> DataFrame:
        return orders.where("reason IS NULL").select("event.*").where("amount > 100")

    def build(pipeline: Pipeline) -> dict[str, DataStreamWriter]:
        orders = parsed(pipeline.read("orders"))
        return {
            "large": pipeline.write(large(orders).select(F.to_json(F.struct("*")).alias("value")),
            "large-orders"), "table": large(orders).writeStream.format("parquet").option("path",
            "large-orders.parquet"), "bad": pipeline.dead_letters(orders.where("reason IS NOT
            NULL"), "orders-dead-letters"),
        }

`build` plans and starts nothing: it gives Spark's own stream writers, any of them, by the names of
their queries. `run` starts each with its name, its own directory in the checkpoint directory
(`<checkpoint>/<name>`), and with `--once` the trigger availableNow: what is there when it begins is
drained, then it ends. (Where an earlier run was stopped after its last batch and nothing came
since, windows that its watermark has closed may stay unwritten: Spark runs no batch without data
then.) Without `--once` the trigger is what the writer says. A query is an independent reader of its
sources, as always in Spark. One that fails stops all, and the exit code is 1.

The file's directory is on sys.path, here and on a cluster's workers, so `build` may use modules
beside it. Nothing but `build` is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.spark.pipeline.records import dead_letter_rows, parse_json
from penstock.spark.sink.writer import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Pipeline", "parse_json"]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What `build` gets. Options given to its methods are those of the source and the sink, and win
    over what is set here."""

    spark: SparkSession
    bootstrap_servers: str
    # What was given to `run` as -c key=value, for the pipeline's own use.
    settings: Mapping[str, str] = field(default_factory=dict)

    def read(self, *topics: str, **options: str) -> DataFrame:
        """The records of topics as a stream, from their beginning on, with their headers."""
        given = {
            "subscribe": ",".join(topics),
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            **options,
        }
        return self.spark.readStream.format("penstock").options(**self._at(given)).load()

    def write(self, rows: DataFrame, topic: str, **options: str) -> DataStreamWriter:
        """To a topic: of the columns, value, key, headers and partition are written. In append or
        complete mode: Spark has no update mode for a sink in Python."""
        check_columns({one.name: one.dataType.simpleString() for one in rows.schema.fields}, topic)
        return rows.writeStream.format("penstock").options(**self._at({"topic": topic, **options}))

    def dead_letters(self, rows: DataFrame, topic: str, **options: str) -> DataStreamWriter:
        """Records that cannot be used, as they were, with a column `reason`: that and where they
        were read go into headers (`reason`, `topic`, `partition`, `offset`). `run` counts them."""
        return self.write(dead_letter_rows(rows), topic, **options)

    def _at(self, options: Mapping[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap_servers, **options}
