"""Spark's side of writing, at least once: rows become record batches of their partitions, which
`writing` delivers.

Rows with a partition go there, those with a key go by its murmur2 as with Kafka's clients, and the
others stay together.
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
from penstock.spark.background import Background
from penstock.spark.kernel.columns import encode, partitions_of, rows_by_partition
from penstock.spark.option_values import OptionError
from penstock.spark.options import SinkOptions
from penstock.spark.sink.deliveries import Deliveries, Identity

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
class Written(WriterCommitMessage):
    rows: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write(self._options, iterator)


def check_columns(columns: Mapping[str, str], topic: str | None) -> None:
    """Names and types of what is written, as Spark writes types. Columns of other names are not
    written."""
    if "value" not in columns:
        raise OptionError(
            f"there is no column value among {', '.join(columns)}: name what to write so, or "
            "select it as value"
        )
    if topic is None and "topic" not in columns:
        raise OptionError(
            "where to write is not said: give the option topic, or have a column topic"
        )
    for name, types in _TYPES.items():
        found = columns.get(name, types[0])
        if found.split(" collate ")[0] not in types:
            raise OptionError(
                f"the column {name} has type {found}: cast it to {' or '.join(types)}"
            )


def write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """What a task does. Nothing is done, and no broker asked, for a task without rows."""
    rows = 0
    gathered = _gathered(batches)
    first = next(gathered, None)
    if first is None:
        return Written(0)
    with Background(options.connection) as background:
        writer = RowWriter(background, options)
        writer.write(first)
        rows += first.num_rows
        for batch in gathered:
            writer.write(batch)
            rows += batch.num_rows
        writer.flush()
    return Written(rows)


class RowWriter:
    def __init__(self, background: Background, options: SinkOptions) -> None:
        self._background = background
        self._options = options
        self._deliveries = background.call(lambda client: Deliveries.open(client, options))
        self._sequences: dict[TopicPartition, int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        _check_sizes(batch, self._options)
        for topic, rows in _rows_by_topic(batch, self._options.topic):
            for partition, numbers in rows_by_partition(
                self._partitions(topic, batch if rows is None else batch.take(rows))
            ):
                self._send(
                    TopicPartition(topic, partition),
                    batch,
                    numbers if rows is None else rows.take(numbers),
                )

    def flush(self) -> None:
        self._background.call(lambda _client: self._deliveries.flush())

    def _partitions(self, topic: str, batch: pa.RecordBatch) -> pa.Int32Array:
        count = self._background.call(lambda client: _count_partitions(client, topic))
        found = pa.nulls(batch.num_rows, pa.int32())
        if "key" in batch.schema.names:
            found = partitions_of(batch.column("key"), count)
        if "partition" in batch.schema.names:
            found = pc.coalesce(_checked(batch.column("partition"), topic, count), found)
        return found.fill_null(random.randrange(count)) if found.null_count else found

    def _send(self, partition: TopicPartition, batch: pa.RecordBatch, rows: pa.Int64Array) -> None:
        options, identity = self._options, self._deliveries.identity
        sequence = self._sequences.get(partition, 0)
        for encoded in encode(
            batch,
            rows=rows,
            max_bytes=options.batch_bytes,
            timestamp_ms=time.time_ns() // 1_000_000,
            codec=options.codec,
            producer_id=identity.id,
            producer_epoch=identity.epoch,
            base_sequence=sequence if identity != Identity() else NO_SEQUENCE,
        ):
            self._put(partition, encoded.batch)
        self._sequences[partition] = (sequence + len(rows)) % _SEQUENCES

    def _put(self, partition: TopicPartition, records: bytes) -> None:
        self._background.call(lambda _client: self._deliveries.put(partition, records))


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Spark's batches are small, and a partition gets a part of each: they are put together
    first."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting += [batch] if batch.num_rows else []
        if sum(one.nbytes for one in waiting) >= SPARK_GATHERED_BYTES:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _rows_by_topic(
    batch: pa.RecordBatch, topic: str | None
) -> Iterator[tuple[str, pa.Int64Array | None]]:
    """The rows of each topic; None is all."""
    if topic is not None:
        yield topic, None
        return
    topics = batch.column("topic").dictionary_encode()
    if topics.null_count:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "the column topic is null in some rows: fill it, or give the option topic",
        )
    names = topics.dictionary.to_pylist()
    for index, rows in rows_by_partition(topics.indices):
        yield names[index], rows


def _check_sizes(batch: pa.RecordBatch, options: SinkOptions) -> None:
    for name in ("key", "value"):
        longest = (
            pc.max(pc.binary_length(batch.column(name))).as_py()
            if name in batch.schema.names
            else None
        )
        if longest is not None and longest > options.max_request_bytes:
            what = (
                f"a {name} of {longest} bytes is larger than the option kafka.max.request.size "
                f"allows ({options.max_request_bytes})"
            )
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{what}: raise it, and max.message.bytes of the topic, or write smaller records",
            )


def _checked(partitions: pa.Int32Array, topic: str, count: int) -> pa.Int32Array:
    edges = pc.min_max(partitions).as_py()
    for one in (edges["min"], edges["max"]):
        if one is not None and not 0 <= one < count:
            reason = (
                f"the column partition has {one}, but topic {topic} has partitions 0 to "
                f"{count - 1}: correct it, or leave it null"
            )
            raise KafkaError(ErrorCode.INVALID_RECORD, reason)
    return partitions


async def _count_partitions(client: Client, topic: str) -> int:
    try:
        return len((await client.cluster.topic(topic, create=True)).partitions)
    except KafkaError as error:
        raise KafkaError(
            error.code, f"{error.message}: create it, or correct the option or column topic"
        ) from error
