"""The DataSource that Spark calls for `format("penstock")`.

Checks options and schema, and creates readers and writers.
"""

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

from penstock.spark.options import OptionError, SinkOptions, sink_options, source_options
from penstock.spark.options.source import include_headers
from penstock.spark.sink.writer import BatchWriter, StreamWriter, check_columns
from penstock.spark.source.batch import BatchReader, FilteringBatchReader
from penstock.spark.source.stream import StreamReader

# Spark starts this worker only if spark.sql.python.filterPushdown.enabled is true. If it is false,
# Spark refuses readers that accept filters.
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


class PenstockDataSource(DataSource):
    """Method names are Spark's."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        columns = [*COLUMNS, ("headers", HEADERS)] if include_headers(self.options) else COLUMNS
        return StructType([StructField(name, type_) for name, type_ in columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check_schema(schema)
        options = source_options(self._options(), streaming=False)
        return (
            FilteringBatchReader(options)
            if options.filter_pushdown and _is_pushdown_worker()
            else BatchReader(options)
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        self._check_schema(schema)
        return StreamReader(source_options(self._options(), streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise OptionError("a topic cannot be overwritten: use the mode append")
        return BatchWriter(self._sink_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        """In complete mode (`overwrite`) each batch writes the whole result, as Spark's own Kafka
        sink does. Spark refuses update mode for sinks in Python."""
        return StreamWriter(self._sink_options(schema))

    def _options(self) -> Mapping[str, str]:
        return dict(self.options)

    def _sink_options(self, schema: StructType) -> SinkOptions:
        options = sink_options(self._options())
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        check_columns(columns, options.topic)
        return options

    def _check_schema(self, schema: StructType) -> None:
        if schema != self.schema():
            raise OptionError(
                "the columns of a topic are fixed: remove schema(...), and convert key and value "
                "in a select"
            )


def _is_pushdown_worker() -> bool:
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or (main is not None and main.name == _PUSHDOWN_WORKER)
