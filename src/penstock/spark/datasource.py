"""The DataSource that Spark calls for `format("penstock")`.

Checks options and schema, and creates readers and writers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeVar

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
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.options import OptionError, SinkOptions, sink_options, source_options
from penstock.spark.options.columns import (
    HEADERS_COLUMN,
    JSON_COLUMN,
    JsonType,
    column_options,
)
from penstock.spark.sink.exactly_once import (
    ExactlyOnceBatchWriter,
    ExactlyOnceStreamWriter,
    is_planner,
)
from penstock.spark.sink.writer import BatchWriter, StreamWriter, check_columns
from penstock.spark.source.batch import BatchReader, FilteringBatchReader
from penstock.spark.source.stream import StreamReader
from penstock.spark.worker_process import runs_module

# Spark starts this worker only if spark.sql.python.filterPushdown.enabled is true. If it is false,
# Spark refuses readers that accept filters.
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"

Writer = TypeVar("Writer", ExactlyOnceStreamWriter, ExactlyOnceBatchWriter)

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMNS: Mapping[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS_COLUMN: HEADERS,
}
_JSON_TYPES: Mapping[JsonType, DataType] = {
    JsonType.STRING: StringType(),
    JsonType.BIGINT: LongType(),
    JsonType.DOUBLE: DoubleType(),
    JsonType.BOOLEAN: BooleanType(),
}


class PenstockDataSource(DataSource):
    """Method names are Spark's."""

    stream_writer: ClassVar[type[ExactlyOnceStreamWriter]] = ExactlyOnceStreamWriter
    batch_writer: ClassVar[type[ExactlyOnceBatchWriter]] = ExactlyOnceBatchWriter

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        options = column_options(self.options)
        fields = [StructField(field.name, _JSON_TYPES[field.type]) for field in options.json_fields]
        types = {**COLUMNS, JSON_COLUMN: StructType(fields)}
        return StructType([StructField(name, types[name]) for name in options.names])

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check_schema(schema)
        options = source_options(self._options(), streaming=False)
        return (
            FilteringBatchReader(options)
            if options.filter_pushdown and runs_module(_PUSHDOWN_WORKER)
            else BatchReader(options)
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        self._check_schema(schema)
        return StreamReader(source_options(self._options(), streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise OptionError("a topic cannot be overwritten: use the mode append")
        options = self._sink_options(schema, streaming=False)
        if not options.exactly_once:
            return BatchWriter(options)
        return self._with_lease(self.batch_writer(options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        """In complete mode (`overwrite`) each batch writes the whole result, as Spark's own Kafka
        sink does. Spark refuses update mode for sinks in Python."""
        options = self._sink_options(schema, streaming=True)
        if not options.exactly_once:
            return StreamWriter(options)
        return self._with_lease(self.stream_writer(options))

    def _with_lease(self, writer: Writer) -> Writer:
        """Spark creates one writer for the tasks, and another one to commit what they wrote."""
        if is_planner():
            writer.take_lease()
        return writer

    def _options(self) -> Mapping[str, str]:
        return dict(self.options)

    def _sink_options(self, schema: StructType, *, streaming: bool) -> SinkOptions:
        options = sink_options(self._options(), streaming=streaming)
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        check_columns(columns, options.topic)
        return options

    def _check_schema(self, schema: StructType) -> None:
        if schema != self.schema():
            raise OptionError(
                "the columns of a topic are fixed: remove schema(...), and convert key and value "
                "in a select"
            )
