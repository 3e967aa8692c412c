"""`format("penstock")`: what Spark asks for by that name. Chooses readers and writers, and checks
options and schemas first."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.option_values import OptionError, flag
from penstock.spark.options import sink_options, source_options
from penstock.spark.sink.writer import BatchWriter, StreamWriter, check_columns
from penstock.spark.source.batch import BatchReader, FilteringReader
from penstock.spark.source.stream import StreamReader

# Spark starts this worker only where spark.sql.python.filterPushdown.enabled is on. Elsewhere it
# refuses readers that take filters.
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMNS: list[tuple[str, DataType]] = [
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
]


class PenstockSource(DataSource):
    """Methods have Spark's names."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        given = {name.lower(): value for name, value in self.options.items()}
        columns = (
            [*COLUMNS, ("headers", HEADERS)]
            if flag(given, "includeheaders", default=False)
            else COLUMNS
        )
        return StructType([StructField(name, kind) for name, kind in columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check_schema(schema)
        options = source_options(self._given(), streaming=False)
        return (
            FilteringReader(options)
            if options.filter_pushdown and _is_pushdown_worker()
            else BatchReader(options)
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        self._check_schema(schema)
        return StreamReader(source_options(self._given(), streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise OptionError("records of a topic cannot be overwritten: use mode append")
        options = sink_options(self._given())
        check_columns(
            {one.name: one.dataType.simpleString() for one in schema.fields}, options.topic
        )
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        """In complete mode (`overwrite`) all of the result is written at each batch, as by Spark's
        own sink. Spark refuses update mode."""
        options = sink_options(self._given())
        check_columns(
            {one.name: one.dataType.simpleString() for one in schema.fields}, options.topic
        )
        return StreamWriter(options)

    def _given(self) -> Mapping[str, str]:
        return dict(self.options)

    def _check_schema(self, schema: StructType) -> None:
        if schema != self.schema():
            raise OptionError(
                "a topic's columns are given: leave out schema(...), and cast or parse key and "
                "value afterwards"
            )


def _is_pushdown_worker() -> bool:
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or (
        started is not None and started.name == _PUSHDOWN_WORKER
    )
