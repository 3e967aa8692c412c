"""Options that decide the columns of the source: columns, includeHeaders and jsonFields. Pure.

The schema of a DataFrame is asked for before all other options are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.spark.options.values import OptionError, bool_option

RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS_COLUMN = "headers"
JSON_COLUMN = "json"
_EXAMPLE = '"merchant STRING, amount BIGINT"'
_FIELD = re.compile(r"\s*(?:`([^`]+)`|(\w+))\s+(\w+)\s*")


class JsonType(StrEnum):
    """Spark's names."""

    STRING = "STRING"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"


_SYNONYMS = {"LONG": JsonType.BIGINT}


@dataclass(frozen=True, slots=True)
class JsonField:
    name: str
    type: JsonType


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """`names` are the columns to read, in order. `json_fields` are those of the column json."""

    names: tuple[str, ...] = RECORD_COLUMNS
    json_fields: tuple[JsonField, ...] = ()


def column_options(options: Mapping[str, str]) -> ColumnOptions:
    """OptionError if the options are invalid or contradict each other."""
    known = {key.lower(): value for key, value in options.items()}
    fields = _json_fields(known["jsonfields"]) if "jsonfields" in known else ()
    headers = bool_option(
        {"includeHeaders": known.get("includeheaders", "false")}, "includeHeaders", default=False
    )
    available = (
        *RECORD_COLUMNS,
        *((HEADERS_COLUMN,) if headers else ()),
        *((JSON_COLUMN,) if fields else ()),
    )
    if "columns" not in known:
        return ColumnOptions(available, fields)
    names = tuple(name.strip() for name in known["columns"].split(","))
    unknown = [name for name in names if name not in available]
    if unknown or len(set(names)) < len(names):
        raise OptionError(
            f"columns is {known['columns']!r}, but must be some of {', '.join(available)}, each "
            "once, separated by commas"
            + (", headers with includeHeaders=true" if HEADERS_COLUMN in unknown else "")
            + (", json with jsonFields" if JSON_COLUMN in unknown else "")
        )
    return ColumnOptions(names, fields)


def _json_fields(text: str) -> tuple[JsonField, ...]:
    fields = tuple(_json_field(text, part) for part in text.split(","))
    names = {field.name for field in fields}
    if len(names) < len(fields):
        raise OptionError(f"jsonFields is {text!r}, which has a field twice: remove one of the two")
    return fields


def _json_field(text: str, part: str) -> JsonField:
    match = _FIELD.fullmatch(part)
    if match is None:
        raise OptionError(
            f"jsonFields is {text!r}, but must be a list of names and types such as {_EXAMPLE}"
        )
    type_name = match[3].upper()
    if type_name not in {*JsonType, *_SYNONYMS}:
        raise OptionError(
            f"jsonFields has a field of type {match[3]}, but types are {', '.join(JsonType)}: use "
            "STRING, and parse or cast the text in a select"
        )
    return JsonField(match[1] or match[2], _SYNONYMS.get(type_name) or JsonType(type_name))
