"""Checking a pipeline without running it: its queries are planned as Spark plans them before it
starts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from penstock.spark.format import PenstockSource
from penstock.spark.option_values import OptionError
from penstock.spark.pipeline.errors import PipelineError, reason
from penstock.spark.pipeline.load import Application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def planned(
    spark: SparkSession,
    application: Application,
    bootstrap_servers: str,
    settings: Mapping[str, str],
) -> dict[str, str]:
    """What each query would write: its columns and their types."""
    writers = application.queries(spark, bootstrap_servers, settings)
    for name, writer in writers.items():
        try:
            _check_can_stream(spark, writer)
        except (OptionError, PySparkException) as error:
            raise PipelineError(
                f"the query {name} cannot be started: {reason(str(error))}"
            ) from error
    return {name: writer._df.schema.simpleString() for name, writer in writers.items()}


def _check_can_stream(spark: SparkSession, writer: DataStreamWriter) -> None:
    """What Spark checks when a query starts, and what it finds only in the first batch."""
    plan = writer._df._jdf.queryExecution().analyzed()
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
        plan, _chosen(writer, "outputMode")
    )
    if (
        _chosen(writer, "source") == PenstockSource.name()
        and _chosen(writer, "outputMode").toString() == "Update"
    ):
        advice = (
            "append writes what a watermark has closed, complete all of the result at each batch"
        )
        raise OptionError(
            "a topic cannot be written in update mode, because Spark has none for sinks in "
            f"Python: {advice}"
        )


def _chosen(writer: DataStreamWriter, field: str) -> Any:
    """Spark does not show otherwise what a writer was told."""
    found = writer._jwrite.getClass().getDeclaredField(field)
    found.setAccessible(True)
    return found.get(writer._jwrite)
