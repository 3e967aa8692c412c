"""A pipeline for a Spark cluster: copies a topic, and adds a header with the path of the worker's
penstock package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as every Spark user writes it

from penstock.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SOURCE, SINK, HEADER = "standalone-in", "standalone-out", "penstock"


def build(pipeline: Pipeline) -> dict[str, DataStreamWriter]:
    return {"copy": pipeline.write(located(pipeline.read(SOURCE)), SINK)}


def located(rows: DataFrame) -> DataFrame:
    header = F.struct(
        F.lit(HEADER).alias("key"),
        F.udf(_penstock_file, "string", useArrow=False)("value").cast("binary").alias("value"),
    )
    return rows.select("value", F.array(header).alias("headers"))


def _penstock_file(_value: bytes) -> str:
    import penstock

    return str(penstock.__file__)
