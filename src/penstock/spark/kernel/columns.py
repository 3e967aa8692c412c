"""Decodes fetched record batches to Arrow, and encodes Arrow to record batches.

This module does the work per batch: framing, CRC, compression, and the filtering of aborted
transactions. The kernel does the work per record. Knows nothing of Spark and the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from penstock.client.consumer.completed_fetch import visible_batches
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Buffer
from penstock.limits import BATCH_HEADER_BYTES, MAX_COLUMNS_BYTES, MAX_COLUMNS_ROWS
from penstock.records.batch import (
    CODEC_MASK,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
)
from penstock.records.compression import Codec, compress, decompress
from penstock.spark.kernel import load_kernel
from penstock.spark.kernel.interface import (
    HEADERS,
    TIMESTAMP,
    Columns,
    CorruptRecords,
    DecompressedBatch,
)

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", HEADERS))

_MAX_OFFSET = 2**63 - 1
_SEQUENCES = 2**31
_MAGIC_AT = 16
_CRC_COVERS_FROM = 21


kernel = load_kernel()


class Decoded(NamedTuple):
    """The rows, if any, and the offset after the last batch that was examined, whether it has rows
    or not."""

    batch: pa.RecordBatch | None
    next_offset: int


def decode(
    batches: Buffer,
    *,
    start: int,
    end: int,
    aborted: Sequence[tuple[int, int]] = (),
    headers: bool,
    topic: str,
    partition: int,
) -> Decoded:
    """Decode the records with start <= offset < end of a Fetch response, whose last batch may be
    incomplete. `aborted` lists the aborted transactions of the response: (producer id, first
    offset).

    Stops early when one Arrow batch is full: call it again from `next_offset` on, with the same
    bytes or those of another Fetch. KafkaError with topic, partition and offset if a batch is
    corrupt.
    """
    selection = _BatchSelection(batches, start, end)
    try:
        _check_format(batches)
        for at, header, visible in visible_batches(batches, aborted):
            if not selection.add(at, header, visible):
                break
        columns = kernel.decode(selection.batches, start, selection.end, headers=headers)
    except CorruptRecords as error:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"{topic}-{partition}@{error.offset}: {error.reason}"
        ) from error
    except KafkaError as error:
        raise KafkaError(
            error.code, f"{topic}-{partition}@{max(selection.position, start)}: {error.message}"
        ) from error
    return Decoded(_record_batch(columns, topic, partition), selection.next_offset)


class _BatchSelection:
    """The record batches that become one Arrow batch."""

    def __init__(self, fetched: Buffer, start: int, end: int) -> None:
        self.batches: list[DecompressedBatch] = []
        self.end = end
        self.next_offset = start
        # Base offset of the current batch, or the lowest that the next batch can have.
        self.position = 0
        self._view = memoryview(fetched)
        self._start = start
        self._bytes = 0
        self._rows = 0

    def add(self, at: int, header: BatchHeader, visible: bool) -> bool:
        """Add the batch at a position of the buffer. Return False when no more are needed."""
        base_offset, count = header.base_offset, header.record_count
        batch_end = base_offset + header.last_offset_delta + 1
        if header.magic != MAGIC or not self.position <= base_offset < batch_end <= _MAX_OFFSET:
            raise _misplaced(header, self.position)
        self.position = base_offset
        if visible and count and self._start < batch_end and base_offset < self.end:
            if self._rows + count > MAX_COLUMNS_ROWS:
                if self.batches:
                    return False
                # An offset has at most one record, so this bounds the rows.
                self.end = min(self.end, max(self._start, base_offset) + MAX_COLUMNS_ROWS)
            records = _decompress(
                header.attributes & CODEC_MASK,
                self._view[at + BATCH_HEADER_BYTES : at + header.size],
            )
            self.batches.append(DecompressedBatch(header, records))
            self._bytes += len(records)
            self._rows += count
        self.position = batch_end
        self.next_offset = max(self.next_offset, min(batch_end, self.end))
        return self.next_offset < self.end and self._bytes < MAX_COLUMNS_BYTES


def _check_format(buffer: Buffer) -> None:
    if len(buffer) > _MAGIC_AT and buffer[_MAGIC_AT] < MAGIC:
        message = (
            f"the records have message format v{buffer[_MAGIC_AT]}, but only v2 is supported: "
            "produce them again with a client that writes v2"
        )
        raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, message)


def _misplaced(header: BatchHeader, position: int) -> CorruptBatch:
    """The CRC does not cover the base offset, and a matching CRC does not prove that the offsets
    are in order."""
    batch = (
        f"a batch with magic {header.magic} and offsets {header.base_offset} to "
        f"{header.last_offset}"
    )
    return CorruptBatch(
        f"{batch} is not valid here: magic {MAGIC} and offsets from {position} on are expected"
    )


def _decompress(codec: int, compressed: memoryview) -> Buffer:
    if not codec:
        return compressed
    if codec > Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"a batch has the unknown codec {codec}"
        )
    return decompress(Codec(codec), compressed)


def _record_batch(columns: Columns, topic: str, partition: int) -> pa.RecordBatch | None:
    count = len(columns.offset)
    if not count:
        return None
    key, value, *others, headers = columns
    arrays = [
        key,
        value,
        pa.repeat(topic, count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        *others,
    ]
    if headers is None:
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return pa.RecordBatch.from_arrays([*arrays, headers], schema=SCHEMA_WITH_HEADERS)


class Encoded(NamedTuple):
    """A record batch to produce, and its number of records."""

    batch: bytes
    records: int


def encode(
    batch: pa.RecordBatch,
    *,
    rows: pa.Array | None = None,
    max_bytes: int,
    timestamp_ms: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> Iterator[Encoded]:
    """Encode the columns value, key and headers (the latter two are optional) as record batches of
    one partition: all rows, or those with the indices in `rows`, in that order.

    Batches are built lazily. Each has at most max_bytes before compression, unless a single record
    is larger. Sequence numbers continue from batch to batch.
    """
    key, value, headers = (_column(batch, name, type_) for name, type_ in _ENCODED)
    if value is None:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "there is no column value: select the column to write as value",
        )
    rows = None if rows is None else rows.cast(pa.int64())
    first, count = 0, len(value) if rows is None else len(rows)
    attributes = codec | TRANSACTIONAL_BIT * transactional
    while first < count:
        try:
            records, taken = kernel.encode(
                key, value, headers, rows, first, max_bytes - BATCH_HEADER_BYTES
            )
        except ValueError as error:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"rows from {first} on cannot be encoded: {error}"
            ) from error
        payload = compress(codec, records, level) if codec else records
        yield Encoded(
            _with_header(
                payload, taken, attributes, timestamp_ms, producer_id, producer_epoch, base_sequence
            ),
            taken,
        )
        first += taken
        if base_sequence != NO_SEQUENCE:
            base_sequence = (base_sequence + taken) % _SEQUENCES


_ENCODED = (("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS))


def encodable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the columns that `encode` reads in the types that it needs, so that it
    does not convert them for each partition again."""
    columns = {name: _column(batch, name, type_) for name, type_ in _ENCODED}
    return pa.RecordBatch.from_arrays(
        [
            batch.column(index) if columns.get(name) is None else columns[name]
            for index, name in enumerate(batch.schema.names)
        ],
        names=batch.schema.names,
    )


def _column(batch: pa.RecordBatch, name: str, type_: pa.DataType) -> pa.Array | None:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if column.type.equals(type_):
        return column
    try:
        return column.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = (
            f"the column {name} of type {column.type} cannot be converted to {type_}: cast it "
            f"first ({error})"
        )
        raise KafkaError(ErrorCode.INVALID_RECORD, message) from error


def _with_header(
    payload: Buffer,
    count: int,
    attributes: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytes:
    """Prepend the batch header. Offsets start at 0; the leader assigns the real ones."""
    length = BATCH_HEADER_BYTES - LENGTH_OVERHEAD + len(payload)
    fields = (
        attributes,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    without_crc = HEADER.pack(0, length, NO_LEADER_EPOCH, MAGIC, 0, *fields)
    crc = crc32c(payload, crc32c(without_crc[_CRC_COVERS_FROM:]))
    return HEADER.pack(0, length, NO_LEADER_EPOCH, MAGIC, crc, *fields) + payload


def partitions_of(keys: pa.Array, count: int) -> pa.Int32Array:
    """Return the partition of each key as Kafka's default partitioner computes it; null for a null
    key."""
    return kernel.partitions(keys.cast(pa.binary()), count)


def rows_by_partition(partitions: pa.Int32Array) -> Iterator[tuple[int, pa.Int64Array]]:
    """Yield each partition with the indices of its rows, in their order. Partitions must not be
    null."""
    order = pc.array_sort_indices(partitions).cast(pa.int64())
    first = 0
    counts = pc.value_counts(partitions).to_pylist()
    for entry in sorted(counts, key=lambda entry: entry["values"]):
        yield entry["values"], order[first : first + entry["counts"]]
        first += entry["counts"]
