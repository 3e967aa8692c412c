"""Messages as JSON, with the field names and formats of Kafka's JSON converters."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

from penstock.ids import uuid_text
from penstock.protocol.schema import Field, fields_of


def as_json(message: object, version: int) -> str:
    return json.dumps(as_object(message, version), separators=(",", ":"))


def as_object(message: object, version: int) -> dict[str, Any]:
    """Return the fields of this version; as on the wire, tagged fields with their default value
    are omitted."""
    fields = {}
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if version in field.versions and (field.tag is None or value != field.default):
            fields[_camel_case(field.name)] = _value(field, value, version)
    return fields


def _value(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_element(field, element, version) for element in value]
    return _element(field, value, version)


def _element(field: Field, value: Any, version: int) -> Any:
    if field.struct is not None:
        return as_object(value, version)
    if isinstance(value, UUID):
        return uuid_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return value


def _camel_case(name: str) -> str:
    first, *more = name.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in more)
