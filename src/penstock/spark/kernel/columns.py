"""From what a fetch returned to an Arrow batch for Spark, and from Arrow to the record batches that
a producer sends.

Owns what is done once a batch: framing, CRC, codec, and what a read_committed consumer is shown.
Must never know of Spark or the network; what is done once a record is the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from penstock.client.isolation import shown_batches
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
from penstock.spark.kernel.choice import kernel
from penstock.spark.kernel.interface import HEADERS, TIMESTAMP, Columns, Damaged, Unpacked

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


class Decoded(NamedTuple):
    """The rows, if any, and where to go on: after all that was looked at, shown or not."""

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
    """The records with start <= offset < end of what a fetch returned, which may be cut at its end.
    `aborted` is what the broker said of aborted transactions: (producer id, first offset).

    Stops early when there is enough for one Arrow batch: ask again from `next_offset` on, with the
    same bytes or by another fetch. KafkaError that names topic, partition and offset where a batch
    is not what it claims to be.
    """
    taking = _Taking(batches, start, end)
    try:
        _check_format(batches)
        for at, header, shown in shown_batches(batches, aborted):
            if not taking.take(at, header, shown):
                break
        columns = kernel.decode(taking.taken, start, taking.end, headers=headers)
    except Damaged as error:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"{topic}-{partition}@{error.offset}: {error.reason}"
        ) from error
    except KafkaError as error:
        raise KafkaError(
            error.code, f"{topic}-{partition}@{max(taking.position, start)}: {error.message}"
        ) from error
    return Decoded(_record_batch(columns, topic, partition), taking.next_offset)


class _Taking:
    """The batches that become one Arrow batch, and how far they go."""

    def __init__(self, batches: Buffer, start: int, end: int) -> None:
        self.taken: list[Unpacked] = []
        self.end = end
        self.next_offset = start
        # Of the batch that is looked at, or the earliest that can come next.
        self.position = 0
        self._view = memoryview(batches)
        self._start = start
        self._bytes = 0
        self._rows = 0

    def take(self, at: int, header: BatchHeader, shown: bool) -> bool:
        """Whether there may be more."""
        base_offset, count = header.base_offset, header.record_count
        following = base_offset + header.last_offset_delta + 1
        if header.magic != MAGIC or not self.position <= base_offset < following <= _MAX_OFFSET:
            raise _misplaced(header, self.position)
        self.position = base_offset
        if shown and count and self._start < following and base_offset < self.end:
            if self._rows + count > MAX_COLUMNS_ROWS:
                if self.taken:
                    return False
                # There are no more rows than that between these offsets.
                self.end = min(self.end, max(self._start, base_offset) + MAX_COLUMNS_ROWS)
            records = _unpack(
                header.attributes & CODEC_MASK,
                self._view[at + BATCH_HEADER_BYTES : at + header.size],
            )
            self.taken.append(Unpacked(header, records))
            self._bytes += len(records)
            self._rows += count
        self.position = following
        self.next_offset = max(self.next_offset, min(following, self.end))
        return self.next_offset < self.end and self._bytes < MAX_COLUMNS_BYTES


def _check_format(buffer: Buffer) -> None:
    if len(buffer) > _MAGIC_AT and buffer[_MAGIC_AT] < MAGIC:
        message = (
            f"the records have message format v{buffer[_MAGIC_AT]}, but only v2 is read: "
            "write them anew with a newer client"
        )
        raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, message)


def _misplaced(header: BatchHeader, position: int) -> CorruptBatch:
    """For what the CRC does not cover, and for what a CRC that matches does not promise."""
    claim = (
        f"a batch of magic {header.magic} from offset {header.base_offset} to {header.last_offset}"
    )
    return CorruptBatch(
        f"{claim} cannot come where one of magic {MAGIC} from offset {position} on is expected"
    )


def _unpack(codec: int, packed: memoryview) -> Buffer:
    if not codec:
        return packed
    if codec > Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"a batch has the unknown codec {codec}"
        )
    return decompress(Codec(codec), packed)


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
    """A record batch as it is sent, and how many records it has."""

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
    """Record batches of the columns value, key and headers (which may be missing), for one
    partition: of all rows, or of those with the numbers in `rows`, in that order. Each is built
    when asked for, and takes at most max_bytes before compression, unless a record alone is larger.
    Sequences go on from batch to batch."""
    key, value, headers = (_column(batch, name, type_) for name, type_ in _ENCODED)
    if value is None:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "there is no column named value: name the one to write so, or add one",
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
                ErrorCode.INVALID_RECORD, f"rows from {first} on cannot be written: {error}"
            ) from error
        packed = compress(codec, records, level) if codec else records
        yield Encoded(
            _sealed(
                packed, taken, attributes, timestamp_ms, producer_id, producer_epoch, base_sequence
            ),
            taken,
        )
        first += taken
        if base_sequence != NO_SEQUENCE:
            base_sequence = (base_sequence + taken) % _SEQUENCES


_ENCODED = (("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS))


def _column(batch: pa.RecordBatch, name: str, type_: pa.DataType) -> pa.Array | None:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    try:
        return column.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = (
            f"the column {name} of type {column.type} cannot be written as {type_}: cast it "
            f"before ({error})"
        )
        raise KafkaError(ErrorCode.INVALID_RECORD, message) from error


def _sealed(
    packed: Buffer,
    count: int,
    attributes: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytes:
    """The batch with its header. Its offsets begin at 0: the leader patches them."""
    length = BATCH_HEADER_BYTES - LENGTH_OVERHEAD + len(packed)
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
    unsealed = HEADER.pack(0, length, NO_LEADER_EPOCH, MAGIC, 0, *fields)
    crc = crc32c(packed, crc32c(unsealed[_CRC_COVERS_FROM:]))
    return HEADER.pack(0, length, NO_LEADER_EPOCH, MAGIC, crc, *fields) + packed


def partitions_of(keys: pa.Array, count: int) -> pa.Int32Array:
    """The partition of each key, of `count`, as Kafka's own producer decides it; null where there
    is no key."""
    return kernel.partitions(keys.cast(pa.binary()), count)


def rows_by_partition(partitions: pa.Int32Array) -> Iterator[tuple[int, pa.Int64Array]]:
    """The rows of each partition that occurs, in their order. None of the partitions may be
    null."""
    order = pc.array_sort_indices(partitions).cast(pa.int64())
    first = 0
    for one in sorted(pc.value_counts(partitions).to_pylist(), key=lambda each: each["values"]):
        yield one["values"], order[first : first + one["counts"]]
        first += one["counts"]
