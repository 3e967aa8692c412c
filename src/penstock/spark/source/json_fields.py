"""Parses fields of JSON values in the task that reads them (the option jsonFields).

Arrow's parser reads a whole column of values in one call, in a fraction of the time that Spark's
get_json_object and from_json take for them. It fails for a column with a single value that is not
what it expects. Such a column is divided until the values that are not are alone; Python's parser
reads those, one by one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from penstock.limits import SPARK_JSON_ROWS
from penstock.spark.options.columns import JsonField, JsonType

_TYPES = {
    JsonType.STRING: pa.string(),
    JsonType.BIGINT: pa.int64(),
    JsonType.DOUBLE: pa.float64(),
    JsonType.BOOLEAN: pa.bool_(),
}
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
# Each value becomes a line with an object that has it as this field. Between two values there are
# thus a brace, a line break and a brace, which follow each other within no JSON text. So two values
# are never one row, and if there are as many rows as values, each row is one value.
_VALUE = "v"
_BEFORE, _AFTER = b'{"v":', b"}\n"


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class JsonFields:
    """Parses the same fields of many columns."""

    def __init__(self, fields: Sequence[JsonField]) -> None:
        self._fields = tuple(fields)
        self.type = pa.struct([(field.name, _TYPES[field.type]) for field in fields])
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema([(_VALUE, self.type)]), unexpected_field_behavior="ignore"
        )

    def parse(self, values: pa.BinaryArray) -> pa.StructArray:
        """Return one struct per value; null for a value that is no JSON object.

        A field is null if it is missing, null or of another type. A STRING field of another type is
        its JSON text.
        """
        parsed = self._parse(values)
        return parsed[0] if len(parsed) == 1 else pa.concat_arrays(parsed)

    def _parse(self, values: pa.BinaryArray) -> list[pa.StructArray]:
        fast = self._parse_fast(values)
        if fast is not None:
            return [fast]
        count = len(values)
        if count <= SPARK_JSON_ROWS:
            rows = [self._parse_value(value) for value in values.to_pylist()]
            return [pa.array(rows, self.type)]
        return [*self._parse(values[: count // 2]), *self._parse(values[count // 2 :])]

    def _parse_fast(self, values: pa.BinaryArray) -> pa.StructArray | None:
        """Return None if a value is not as expected."""
        if not len(values):
            return pa.array([], self.type)
        filled = pc.fill_null(values, b"null") if values.null_count else values
        text = pc.binary_join_element_wise(_BEFORE, filled, _AFTER, b"").buffers()[2]
        # One block, so that the rows are one chunk.
        reading = pj.ReadOptions(use_threads=False, block_size=text.size)
        try:
            table = pj.read_json(pa.BufferReader(text), reading, self._options)
        except pa.ArrowInvalid:
            return None
        if len(table) != len(values):
            return None
        parsed: pa.StructArray = table.column(0).combine_chunks()
        return parsed

    def _parse_value(self, value: bytes | None) -> dict[str, object] | None:
        try:
            text = (value or b"").decode(errors="replace")
            parsed = json.loads(text, parse_int=_Number, parse_float=_Number)
        except (ValueError, RecursionError):
            return None
        if not isinstance(parsed, dict):
            return None
        return {
            field.name: _converted(parsed.get(field.name), field.type) for field in self._fields
        }


def _converted(value: Any, type_: JsonType) -> object:
    if value is None:
        return None
    if type_ is JsonType.STRING:
        return _text(value)
    if type_ is JsonType.BOOLEAN:
        return value if isinstance(value, bool) else None
    if not isinstance(value, _Number):
        return None
    if type_ is JsonType.DOUBLE:
        return float(value)
    try:
        number = int(value)
    except ValueError:
        return None
    return number if _MIN_INT64 <= number <= _MAX_INT64 else None


def _text(value: Any) -> str:
    """Return a string as it is, anything else as JSON. Half of a surrogate pair has no UTF-8."""
    text = value if isinstance(value, str) else _json(value)
    return text.encode(errors="replace").decode()


def _json(value: Any) -> str:
    """Write JSON without spaces, with numbers as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        members = (f"{_json(name)}:{_json(member)}" for name, member in value.items())
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    return json.dumps(value, ensure_ascii=False)
