"""The kernel in C (native/): gives it the buffers of Arrow's arrays, and makes arrays of those that
it gives back, without a copy.

ImportError where it was not built.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.ids import Buffer
from penstock.spark.kernel import _native
from penstock.spark.kernel.interface import HEADERS, TIMESTAMP, Columns, Damaged, Unpacked


def decode(batches: Sequence[Unpacked], start: int, end: int, *, headers: bool) -> Columns:
    given = [
        (
            records,
            head.base_offset,
            head.base_timestamp,
            head.max_timestamp,
            head.log_append_time,
            head.last_offset_delta,
            head.record_count,
        )
        for head, records in batches
        if head.record_count
    ]
    try:
        key, value, offset, timestamp, timestamp_type, lists = _native.decode(
            given, start, end, headers
        )
    except ValueError as error:
        raise Damaged(*error.args) from None
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
    """As in Kafka's clients, what is not UTF-8 is replaced. It is so rare that Python may do it."""
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
    chosen = None if rows is None else memoryview(rows.buffers()[1] or b"")[rows.offset * 8 :]
    columns = None if key is None else _source(key)
    return _native.encode(
        columns, _source(value), _header_sources(headers), chosen, first, last, max_bytes
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
    # A struct that is null has a key that is null.
    keys, values = headers.values.flatten()
    return (validity, offsets, None, headers.offset, len(headers)), _source(keys), _source(values)


def partitions(keys: pa.BinaryArray, count: int) -> pa.Int32Array:
    found = _native.partitions(_source(keys), count)
    numbers = pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(found)])
    return pc.if_else(keys.is_valid(), numbers, None) if keys.null_count else numbers
