"""The DataSourceArrowWriter of at-least-once delivery, and the check of the columns to write.

Spark runs a failed task again, and the records that it has already written are written again.
`exactly_once` has the writer of exactly-once delivery.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.options import OptionError, SinkOptions
from penstock.spark.shared_client import shared_client
from penstock.spark.sink.rows import EncodedRows, RowWriter, gather
from penstock.spark.sink.sender import BatchSender

_TEXT = ("string", "binary")
_TYPES: Mapping[str, tuple[str, ...]] = {
    "value": _TEXT,
    "key": _TEXT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}


@dataclass(frozen=True)
class RowsWritten(WriterCommitMessage):
    rows: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return write(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return write(self._options, iterator)


def check_columns(columns: Mapping[str, str], topic: str | None) -> None:
    """Check names and Spark types of the columns to write. Columns with other names are not
    written."""
    if "value" not in columns:
        raise OptionError(
            f"there is no column value among {', '.join(columns)}: select the column to write as "
            "value"
        )
    if topic is None and "topic" not in columns:
        raise OptionError("no topic to write to: set the option topic, or add a column topic")
    for name, types in _TYPES.items():
        type_ = columns.get(name, types[0])
        if type_.split(" collate ")[0] not in types:
            raise OptionError(
                f"the column {name} has type {type_}: cast it to {' or '.join(types)}"
            )


def write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
    """Write the rows of a task. A task without rows does not connect to the cluster."""
    gathered = gather(batches)
    first = next(gathered, None)
    if first is None:
        return RowsWritten(0)
    with shared_client(options.connection) as blocking:
        output = _Output(blocking, options)
        try:
            writer = RowWriter(blocking, options, output)
            writer.write(first)
            for batch in gathered:
                writer.write(batch)
            output.flush()
        finally:
            output.close()
        return RowsWritten(output.rows)


class _Output:
    """Sends record batches at once, outside transactions."""

    def __init__(self, blocking: BlockingClient, options: SinkOptions) -> None:
        self.rows = 0
        self._blocking = blocking
        self._sender = blocking.call(lambda client: BatchSender.open(client, options))

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return self._sender.producer

    def add(self, batches: Sequence[EncodedRows]) -> None:
        self.rows += sum(rows.records for rows in batches)
        encoded = [(rows.partition, rows.batch) for rows in batches]
        self._blocking.call(lambda _client: self._sender.send_all(encoded))

    def flush(self) -> None:
        self._blocking.call(lambda _client: self._sender.flush())

    def close(self) -> None:
        self._blocking.call(lambda _client: self._sender.close())
