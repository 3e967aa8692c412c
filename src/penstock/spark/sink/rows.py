"""Divides rows among partitions and encodes them as record batches.

A row with a value in the column partition goes to that partition. Otherwise a row with a key goes
to the partition of its murmur2 hash, as with Kafka's clients. All other rows of a batch go to one
random partition. Does not know how the batches are written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.client import Client
from penstock.client.producer.accumulator import NO_PRODUCER, ProducerIdAndEpoch
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_SEQUENCE, TopicPartition
from penstock.limits import SPARK_GATHERED_BYTES
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.kernel.columns import encodable, encode, partitions_of, rows_by_partition
from penstock.spark.options import SinkOptions

_SEQUENCES = 2**31


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """A record batch of one partition."""

    partition: TopicPartition
    records: int
    batch: bytes


class RowOutput(Protocol):
    """Takes record batches, which have this producer and consecutive sequence numbers."""

    @property
    def producer(self) -> ProducerIdAndEpoch: ...

    def add(self, batches: Sequence[EncodedRows]) -> None: ...


class RowWriter:
    """Passes the record batches of the rows of each partition to its output."""

    def __init__(self, blocking: BlockingClient, options: SinkOptions, output: RowOutput) -> None:
        self._blocking = blocking
        self._options = options
        self._output = output
        self._sequences: dict[TopicPartition, int] = {}
        # The output is in another thread, and a wide topic has many small batches.
        self._encoded: list[EncodedRows] = []
        self._encoded_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        _check_sizes(batch, self._options)
        batch = encodable(batch)
        for topic, rows in _rows_by_topic(batch, self._options.topic):
            for partition, indices in rows_by_partition(
                self._partitions(topic, batch if rows is None else batch.take(rows))
            ):
                self._send(
                    TopicPartition(topic, partition),
                    batch,
                    indices if rows is None else rows.take(indices),
                )
        self._pass_on()

    def _partitions(self, topic: str, batch: pa.RecordBatch) -> pa.Int32Array:
        count = self._blocking.call(lambda client: _count_partitions(client, topic))
        if "partition" in batch.schema.names:
            highest = pc.max(batch.column("partition")).as_py()
            if highest is not None and highest >= count:
                # The topic may have got more partitions.
                self._blocking.call(lambda client: _forget(client, topic))
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
        options, producer = self._options, self._output.producer
        sequence = self._sequences.get(partition, 0)
        for encoded in encode(
            batch,
            rows=rows,
            max_bytes=options.batch_bytes,
            timestamp_ms=time.time_ns() // 1_000_000,
            codec=options.codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence if producer != NO_PRODUCER else NO_SEQUENCE,
        ):
            self._encoded.append(EncodedRows(partition, encoded.records, encoded.batch))
            self._encoded_bytes += len(encoded.batch)
            if self._encoded_bytes >= options.batch_bytes:
                self._pass_on()
        self._sequences[partition] = (sequence + len(rows)) % _SEQUENCES

    def _pass_on(self) -> None:
        encoded, self._encoded, self._encoded_bytes = self._encoded, [], 0
        if encoded:
            self._output.add(encoded)


def gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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


async def _forget(client: Client, topic: str) -> None:
    client.cluster.metadata.forget(topic)


async def _count_partitions(client: Client, topic: str) -> int:
    try:
        return len((await client.cluster.topic(topic, create=True)).partitions)
    except KafkaError as error:
        raise KafkaError(
            error.code, f"{error.message}: create it, or correct the option or column topic"
        ) from error
