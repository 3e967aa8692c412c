"""The kernel in Python, for installations without the compiled one. It creates an object per
record, as `penstock.records` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.client.producer.partitioner import partition_of_key
from penstock.errors import KafkaError
from penstock.ids import NO_TIMESTAMP, Buffer
from penstock.limits import BATCH_HEADER_BYTES, MAX_RECORD_HEADERS
from penstock.records.batch import CODEC_MASK, LENGTH_OVERHEAD
from penstock.records.build import NewRecord, build_batch
from penstock.records.record import Headers, Row, rows_of
from penstock.spark.kernel.interface import (
    HEADER_OVERHEAD,
    HEADERS,
    RECORD_OVERHEAD,
    TIMESTAMP,
    Columns,
    CorruptRecords,
    DecompressedBatch,
)

_INT64 = 2**63
_US_PER_MS = 1000


def decode(batches: Sequence[DecompressedBatch], start: int, end: int, *, headers: bool) -> Columns:
    rows: list[Row] = []
    types: list[int] = []
    for batch in batches:
        selected = [row for row in _rows(batch) if start <= row[0] < end]
        if any(not -_INT64 <= row[1] * _US_PER_MS < _INT64 for row in selected):
            raise CorruptRecords(
                batch.header.base_offset, "a timestamp in microseconds exceeds 64 bits"
            )
        rows += selected
        types += [int(batch.header.log_append_time)] * len(selected)
    return Columns(
        key=pa.array([row[2] for row in rows], pa.binary()),
        value=pa.array([row[3] for row in rows], pa.binary()),
        offset=pa.array([row[0] for row in rows], pa.int64()),
        timestamp=pa.array([row[1] * _US_PER_MS for row in rows], TIMESTAMP),
        timestamp_type=pa.array(types, pa.int32()),
        headers=pa.array([_structs(row[4]) for row in rows], HEADERS) if headers else None,
    )


def _rows(batch: DecompressedBatch) -> list[Row]:
    """Decode with the header of an uncompressed batch."""
    header = batch.header._replace(
        batch_length=BATCH_HEADER_BYTES - LENGTH_OVERHEAD + len(batch.records),
        attributes=batch.header.attributes & ~CODEC_MASK,
    )
    try:
        return rows_of(bytes(BATCH_HEADER_BYTES) + batch.records, header)
    except KafkaError as error:
        raise CorruptRecords(header.base_offset, error.message) from error


def _structs(headers: Headers) -> list[dict[str, str | bytes | None]] | None:
    return [{"key": key, "value": value} for key, value in headers] or None


def encode(
    key: pa.BinaryArray | None,
    value: pa.BinaryArray,
    headers: pa.ListArray | None,
    rows: pa.Int64Array | None,
    first: int,
    max_bytes: int,
) -> tuple[Buffer, int]:
    taken: list[NewRecord] = []
    size = 0
    for record in _records(key, value, headers, rows, first):
        size += _max_size(record)
        if taken and size > max_bytes:
            break
        taken.append(record)
    return build_batch(taken)[BATCH_HEADER_BYTES:], len(taken)


def _records(
    key: pa.BinaryArray | None,
    value: pa.BinaryArray,
    headers: pa.ListArray | None,
    rows: pa.Int64Array | None,
    first: int,
) -> Iterator[NewRecord]:
    last = len(value) if rows is None else len(rows)
    for at in range(first, last):
        row = at if rows is None else rows[at].as_py()
        if not 0 <= row < len(value):
            raise ValueError(f"row {row} does not exist")
        yield NewRecord(
            None if key is None else key[row].as_py(),
            value[row].as_py(),
            () if headers is None else _headers(headers[row].as_py()),
            NO_TIMESTAMP,
        )


def _headers(structs: list[dict[str, str | bytes | None] | None] | None) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for struct in structs or ():
        key, value = (None, None) if struct is None else struct.values()
        if not isinstance(key, str) or isinstance(value, str):
            raise ValueError("a header has no key")
        headers.append((key, value))
    if len(headers) > MAX_RECORD_HEADERS:
        raise ValueError(f"a record has more than {MAX_RECORD_HEADERS} headers")
    return tuple(headers)


def _max_size(record: NewRecord) -> int:
    headers = sum(
        HEADER_OVERHEAD + len(key.encode()) + len(value or b"") for key, value in record.headers
    )
    return RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"") + headers


def partitions(keys: pa.BinaryArray, count: int) -> pa.Int32Array:
    return pa.array(
        [None if key is None else partition_of_key(key, count) for key in keys.to_pylist()],
        pa.int32(),
    )
