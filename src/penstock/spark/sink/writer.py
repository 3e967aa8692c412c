"""The DataSourceArrowWriter, which turns rows into record batches and sends them at least once.

A row with a value in the column partition goes to that partition. Otherwise a row with a key goes
to the partition of its murmur2 hash, as with Kafka's clients. All other rows of a batch go to one
random partition.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_SEQUENCE, TopicPartition
from penstock.limits import SPARK_GATHERED_BYTES
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.kernel.columns import encode, partitions_of, rows_by_partition
from penstock.spark.options import OptionError, SinkOptions
from penstock.spark.sink.sender import BatchSender, ProducerIdAndEpoch

_SEQUENCES = 2**31
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
    rows = 0
    gathered = _gather(batches)
    first = next(gathered, None)
    if first is None:
        return RowsWritten(0)
    with BlockingClient(options.connection) as blocking:
        writer = RowWriter(blocking, options)
        writer.write(first)
        rows += first.num_rows
        for batch in gathered:
            writer.write(batch)
            rows += batch.num_rows
        writer.flush()
    return RowsWritten(rows)


class RowWriter:
    """Divides rows among partitions, and encodes and sends the record batches of each."""

    def __init__(self, blocking: BlockingClient, options: SinkOptions) -> None:
        self._blocking = blocking
        self._options = options
        self._sender = blocking.call(lambda client: BatchSender.open(client, options))
        self._sequences: dict[TopicPartition, int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        _check_sizes(batch, self._options)
        for topic, rows in _rows_by_topic(batch, self._options.topic):
            for partition, indices in rows_by_partition(
                self._partitions(topic, batch if rows is None else batch.take(rows))
            ):
                self._send(
                    TopicPartition(topic, partition),
                    batch,
                    indices if rows is None else rows.take(indices),
                )

    def flush(self) -> None:
        self._blocking.call(lambda _client: self._sender.flush())

    def _partitions(self, topic: str, batch: pa.RecordBatch) -> pa.Int32Array:
        count = self._blocking.call(lambda client: _count_partitions(client, topic))
        partitions = pa.nulls(batch.num_rows, pa.int32())
        if "key" in batch.schema.names:
            partitions = partitions_of(batch.column("key"), count)
        if "partition" in batch.schema.names:
            explicit = batch.column("partition")
            _check_partitions(explicit, topic, count)
            partitions = pc.coalesce(explicit, partitions)
        if partitions.null_count:
            return partitions.fill_null(random.randrange(count))
        return partitions

    def _send(self, partition: TopicPartition, batch: pa.RecordBatch, rows: pa.Int64Array) -> None:
        options, producer = self._options, self._sender.producer
        sequence = self._sequences.get(partition, 0)
        for encoded in encode(
            batch,
            rows=rows,
            max_bytes=options.batch_bytes,
            timestamp_ms=time.time_ns() // 1_000_000,
            codec=options.codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence if producer != ProducerIdAndEpoch() else NO_SEQUENCE,
        ):
            self._send_batch(partition, encoded.batch)
        self._sequences[partition] = (sequence + len(rows)) % _SEQUENCES

    def _send_batch(self, partition: TopicPartition, batch: bytes) -> None:
        self._blocking.call(lambda _client: self._sender.send(partition, batch))


def _gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Concatenate Spark's small batches, since each is divided among all partitions."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered += [batch] if batch.num_rows else []
        if sum(batch.nbytes for batch in gathered) >= SPARK_GATHERED_BYTES:
            yield pa.concat_batches(gathered)
            gathered = []
    if gathered:
        yield pa.concat_batches(gathered)


def _rows_by_topic(
    batch: pa.RecordBatch, topic: str | None
) -> Iterator[tuple[str, pa.Int64Array | None]]:
    """Yield each topic with its rows; None means all rows."""
    if topic is not None:
        yield topic, None
        return
    topics = batch.column("topic").dictionary_encode()
    if topics.null_count:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "the column topic is null in some rows: fill it, or set the option topic",
        )
    names = topics.dictionary.to_pylist()
    for index, rows in rows_by_partition(topics.indices):
        yield names[index], rows


def _check_sizes(batch: pa.RecordBatch, options: SinkOptions) -> None:
    for name in ("key", "value"):
        if name not in batch.schema.names:
            continue
        longest = pc.max(pc.binary_length(batch.column(name))).as_py()
        if longest is not None and longest > options.max_request_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a {name} of {longest} bytes is larger than the option kafka.max.request.size "
                f"({options.max_request_bytes}): raise it together with max.message.bytes of the "
                "topic, or write smaller records",
            )


def _check_partitions(partitions: pa.Int32Array, topic: str, count: int) -> None:
    edges = pc.min_max(partitions).as_py()
    for partition in (edges["min"], edges["max"]):
        if partition is not None and not 0 <= partition < count:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"the column partition contains {partition}, but topic {topic} has partitions 0 "
                f"to {count - 1}: correct the value, or leave it null",
            )


async def _count_partitions(client: Client, topic: str) -> int:
    try:
        return len((await client.cluster.topic(topic, create=True)).partitions)
    except KafkaError as error:
        raise KafkaError(
            error.code, f"{error.message}: create it, or correct the option or column topic"
        ) from error
