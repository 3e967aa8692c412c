"""A pipeline application is a Python file with a function `build`, run by `penstock pipeline run`.

    from pyspark.sql import DataFrame, functions as F
    from pyspark.sql.streaming import DataStreamWriter
    from penstock.spark.pipeline import Pipeline, parse_json

    FAIL_ON_LATE_ROWS = True  # optional: the run fails if a watermark drops a row

    # Steps are plain functions from DataFrame to DataFrame.
    def parsed(rows: DataFrame) -> DataFrame:
        return parse_json(rows, "id STRING NOT NULL, amount LONG")

    def large(orders: DataFrame) -> DataFrame:
        return orders.where("reason IS NULL").select("event.*").where("amount > 100")

    def build(pipeline: Pipeline) -> dict[str, DataStreamWriter]:
        orders = parsed(pipeline.read("orders"))
        records = large(orders).select(F.to_json(F.struct("*")).alias("value"))
        bad = orders.where("reason IS NOT NULL")
        return {
            "large": pipeline.write(records, "large-orders"),
            "table": large(orders).writeStream.format("parquet").option("path", "orders.parquet"),
            "bad": pipeline.dead_letters(bad, "orders-dead-letters"),
        }

`build` plans the queries and starts nothing. It returns Spark's stream writers, with any sink, by
query name.

`run` starts every query with its name and its own checkpoint directory (`<checkpoint>/<name>`).
The id of the query in that directory is the name of its sink: after a crash the query continues
and writes nothing twice. With a checkpoint that is not in a local file system, the name is made of
the checkpoint's URI; after you delete such a checkpoint, give the sink a new name with the option
sinkName.

With `--once` the trigger is availableNow: the query processes the records that exist when it
starts, and ends. Without `--once` the writer's trigger applies. Queries are independent of each
other, as always in Spark: each reads its sources itself. If a query fails, all are stopped and the
exit code is 1.

With `--once`, windows that the watermark of an earlier run has closed may stay unwritten if that
run was stopped after its last batch and no record has arrived since: Spark runs no batch without
data in this case.

The directory of the file is on sys.path, on the driver and on the workers of a cluster, so `build`
can import modules beside it. Penstock calls nothing but `build`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.spark.options import broker_options
from penstock.spark.pipeline.parsing import dead_letter_rows, parse_json
from penstock.spark.sink.writer import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Pipeline", "parse_json"]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The argument of `build`. Options passed to its methods are those of the source and the sink;
    they override the defaults below."""

    spark: SparkSession
    bootstrap_servers: str
    # From `penstock pipeline run -c key=value`, for use by the pipeline.
    settings: Mapping[str, str] = field(default_factory=dict)

    def read(self, *topics: str, **options: str) -> DataFrame:
        """Return a streaming DataFrame of topics, from their earliest offsets, with headers."""
        defaults = {
            "subscribe": ",".join(topics),
            "startingOffsets": "earliest",
            "includeHeaders": "true",
        }
        return (
            self.spark.readStream.format("penstock").options(**self._on(defaults | options)).load()
        )

    def write(self, rows: DataFrame, topic: str, **options: str) -> DataStreamWriter:
        """Write the columns value, key, headers and partition to a topic, exactly once; other
        columns are not written. Every output mode works: in update mode `run` writes through
        foreachBatch, since Spark refuses this mode for sinks in Python."""
        check_columns(
            {field.name: field.dataType.simpleString() for field in rows.schema.fields}, topic
        )
        return rows.writeStream.format("penstock").options(**self._on({"topic": topic} | options))

    def dead_letters(self, rows: DataFrame, topic: str, **options: str) -> DataStreamWriter:
        """Write unusable records with their original key and value. `rows` needs a column `reason`;
        it becomes a header, beside `topic`, `partition` and `offset` of the original record. `run`
        counts the records."""
        return self.write(dead_letter_rows(rows), topic, **options)

    def _on(self, options: Mapping[str, str]) -> dict[str, str]:
        return {**broker_options(self.bootstrap_servers), **options}
