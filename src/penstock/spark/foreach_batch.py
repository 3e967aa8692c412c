"""Writes the micro-batches of `foreachBatch` to topics, exactly once and in every output mode.

Spark accepts update mode only for sinks whose WriteBuilder implements the Java interface
SupportsStreamingUpdateAsAppend. The WriteBuilder of sinks in Python does not, and Python code
cannot change that. `foreachBatch` accepts every output mode, and each micro-batch is then a batch
write with the options txnAppId and txnVersion, which make a repeated micro-batch write nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.spark.options import OptionError
from penstock.spark.options.sink import AT_LEAST_ONCE
from penstock.spark.sink.checkpoint import QUERY_ID_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def foreach_batch(**options: str) -> Callable[[DataFrame, int], None]:
    """Return the function for `DataStreamWriter.foreachBatch` that writes each micro-batch to a
    topic. `options` are those of a batch write: `foreach_batch(**{"topic": "totals", …})`.

    txnAppId is the id of the query unless it is given: the query of a new checkpoint writes all
    its results again. txnVersion is the id of the micro-batch.
    """
    given = {name.lower(): value for name, value in options.items()}
    if "txnversion" in given:
        raise OptionError(
            "the option txnVersion is the id of the micro-batch here: remove it from foreach_batch"
        )
    exactly_once = given.get("delivery", "").strip().lower() != AT_LEAST_ONCE

    def write(rows: DataFrame, batch_id: int) -> None:
        writer = rows.write.format("penstock").options(**options)
        if exactly_once:
            writer = writer.option("txnAppId", given.get("txnappid") or _query_id(rows))
            writer = writer.option("txnVersion", str(batch_id))
        writer.mode("append").save()

    return write


def _query_id(rows: DataFrame) -> str:
    """Return the id of the query that runs in this thread. It is in the checkpoint."""
    query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    if not query_id:
        raise OptionError(
            "foreach_batch runs outside of a streaming query: pass its result to foreachBatch, or "
            "add the option txnAppId"
        )
    return str(query_id)
