"""The kernel in C (native/). Passes the buffers of Arrow arrays in and out without copying.

ImportError if the extension module was not built.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.ids import Buffer
from penstock.spark.kernel import _native
from penstock.spark.kernel.interface import (
    HEADERS,
    TIMESTAMP,
    Columns,
    CorruptRecords,
    DecompressedBatch,
)


def decode(batches: Sequence[DecompressedBatch], start: int, end: int, *, headers: bool) -> Columns:
    arguments = [
        (
            records,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.log_append_time,
            header.last_offset_delta,
            header.record_count,
        )
        for header, records in batches
        if header.record_count
    ]
    try:
        key, value, offset, timestamp, timestamp_type, lists = _native.decode(
            arguments, start, end, headers
        )
    except ValueError as error:
        raise CorruptRecords(*error.args) from None
    count = len(offset) // 8
    return Columns(
        key=_binary(key),
        value=_binary(value),
        offset=pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(offset)]),
        timestamp=pa.Array.from_buffers(TIMESTAMP, count, [None, pa.py_buffer(timestamp)]),
        timestamp_type=pa.Array.from_buffers(
            pa.int32(), count, [None, pa.py_buffer(timestamp_type)]
        ),
        headers=None if lists is None else _lists(*lists),
    )


def _binary(column: _native.Column) -> pa.BinaryArray:
    rows, nulls, validity, offsets, data = column
    buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


def _lists(lists: _native.Column, keys: _native.Column, values: _native.Column) -> pa.ListArray:
    rows, nulls, validity, offsets, _data = lists
    children = [_text(_binary(keys)), _binary(values)]
    structs = pa.StructArray.from_arrays(children, fields=list(HEADERS.value_type))
    return pa.Array.from_buffers(
        HEADERS,
        rows,
        [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets)],
        nulls,
        children=[structs],
    )


def _text(keys: pa.BinaryArray) -> pa.StringArray:
    """Convert to text; bytes that are not UTF-8 are replaced, as in Kafka's clients. That is rare
    enough to do it in Python."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())


def encode(
    key: pa.BinaryArray | None,
    value: pa.BinaryArray,
    headers: pa.ListArray | None,
    rows: pa.Int64Array | None,
    first: int,
    max_bytes: int,
) -> tuple[Buffer, int]:
    last = len(value) if rows is None else len(rows)
    indices = None if rows is None else memoryview(rows.buffers()[1] or b"")[rows.offset * 8 :]
    keys = None if key is None else _source(key)
    return _native.encode(
        keys, _source(value), _header_sources(headers), indices, first, last, max_bytes
    )


def _source(column: pa.BinaryArray) -> _native.Source:
    validity, offsets, data = column.buffers()
    return validity, offsets, data, column.offset, len(column)


def _header_sources(
    headers: pa.ListArray | None,
) -> tuple[_native.Source | None, _native.Source | None, _native.Source | None]:
    if headers is None:
        return None, None, None
    validity, offsets = headers.buffers()[:2]
    # `flatten` makes the key null where the struct is null.
    keys, values = headers.values.flatten()
    return (validity, offsets, None, headers.offset, len(headers)), _source(keys), _source(values)


def partitions(keys: pa.BinaryArray, count: int) -> pa.Int32Array:
    numbers = _native.partitions(_source(keys), count)
    array = pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(numbers)])
    return pc.if_else(keys.is_valid(), array, None) if keys.null_count else array
