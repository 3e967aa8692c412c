"""Compares every message and version with kio in both directions: equal bytes from equal values,
and equal values from the bytes.

kio 0.6 has all APIs and versions of Kafka 4.3. A later kio may have more versions, which is no
failure.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
from collections.abc import Iterator
from types import NoneType
from typing import Any, cast, get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from penstock.ids import NO_UUID
from penstock.protocol.apis import APIS, request_class, response_class
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.layout import Layout, layout_of
from penstock.protocol.schema import Field, schema_of
from tests.protocol.schema_strategies import few_examples, internal_messages, messages_of

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_LISTED_ERRORS = st.sampled_from([code.value for code in KioErrorCode])

# kio maps some integers to richer types with a smaller range.
_KIO_RANGES: dict[str, st.SearchStrategy[int]] = {
    "error_code": _LISTED_ERRORS,
    "timedelta_i64": st.integers(-(10**12), 10**12),
    "datetime_i64": st.integers(0, 4 * 10**12),
}


def _our_classes() -> dict[tuple[str, EntityType], type]:
    """Return our classes by kio's name and kind."""
    classes: dict[tuple[str, EntityType], type] = {}
    for api in APIS:
        classes[api.module.rpartition(".")[2], EntityType.request] = request_class(api.key)
        classes[api.module.rpartition(".")[2], EntityType.response] = response_class(api.key)
    by_flat_name = {cls.__name__.lower(): cls for cls in internal_messages()}
    for name in schema_name_map:
        if name.replace("_", "") in by_flat_name:
            kind = EntityType.header if name.endswith("_header") else EntityType.data
            classes[name, kind] = by_flat_name[name.replace("_", "")]
    return classes


def _cases() -> Iterator[Any]:
    for (name, entity), cls in _our_classes().items():
        for version in range(schema_of(cls).versions.first, schema_of(cls).versions.last + 1):
            yield pytest.param(name, entity, cls, version, id=f"{cls.__name__}-{version}")


def _kio_class(annotation: Any) -> Any:
    """Return the innermost type: Topic for tuple[Topic, ...] | None."""
    if get_origin(annotation) is tuple:
        return _kio_class(get_args(annotation)[0])
    inner = [argument for argument in get_args(annotation) if argument is not NoneType]
    return _kio_class(inner[0]) if inner else annotation


def _pairs(layout: Layout, cls: type, kio_cls: Any) -> list[tuple[Field, Any]]:
    """Pair our fields with kio's. The names differ (max_wait_ms, max_wait); the order does not."""
    carried = {field.name for field in (*layout.plain(cls), *layout.tagged(cls))}
    ours = [field for field in cls.__dict__["__kafka_fields__"] if field.name in carried]
    return list(zip(ours, dataclasses.fields(kio_cls), strict=True))


def _narrowed(
    layout: Layout, cls: type, kio_cls: Any, path: str = ""
) -> dict[str, st.SearchStrategy[Any]]:
    narrowed: dict[str, st.SearchStrategy[Any]] = {}
    for field, kio_field in _pairs(layout, cls, kio_cls):
        if field.struct is not None:
            narrowed |= _narrowed(
                layout, field.struct, _kio_class(kio_field.type), f"{path}{field.name}."
            )
        elif kio_field.metadata["kafka_type"] in _KIO_RANGES:
            narrowed[path + field.name] = _KIO_RANGES[kio_field.metadata["kafka_type"]]
    return narrowed


def _to_kio(layout: Layout, message: Any, kio_cls: Any) -> Any:
    values = {}
    for field, kio_field in _pairs(layout, type(message), kio_cls):
        value = getattr(message, field.name)
        if field.is_array and value is not None:
            values[kio_field.name] = tuple(
                _value_to_kio(layout, field, kio_field, element) for element in value
            )
        else:
            values[kio_field.name] = _value_to_kio(layout, field, kio_field, value)
    return kio_cls(**values)


def _value_to_kio(layout: Layout, field: Field, kio_field: Any, value: Any) -> Any:
    if value is None or (value == NO_UUID and isinstance(value, UUID)):
        return None
    if field.struct is not None:
        return _to_kio(layout, value, _kio_class(kio_field.type))
    match kio_field.metadata["kafka_type"]:
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return value * _MILLISECOND
        case "datetime_i64":
            return _EPOCH + value * _MILLISECOND
    return value


@pytest.mark.parametrize(("name", "entity", "cls", "version"), list(_cases()))
def test_same_bytes_and_values_as_kio(
    name: str, entity: EntityType, cls: type, version: int
) -> None:
    kio_cls: Any = load_entity_schema(name, version, cast(Any, entity))
    layout = layout_of(cls, version)
    write, read = entity_writer(kio_cls), entity_reader(kio_cls)

    @few_examples
    @given(messages_of(cls, version, _narrowed(layout, cls, kio_cls)))
    def both_directions(message: Any) -> None:
        kio_message = _to_kio(layout, message, kio_cls)
        buffer = io.BytesIO()
        write(buffer, kio_message)
        assert encode_bytes(message, version) == buffer.getvalue()
        assert decode(cls, version, buffer.getvalue()) == message
        assert read(buffer.getvalue(), 0) == (kio_message, len(buffer.getvalue()))

    both_directions()


def test_every_message_of_kio_is_compared() -> None:
    """A message that is missing in our classes would not be tested."""
    assert {name for name, _ in _our_classes()} >= set(schema_name_map)


def test_keys_equal_kios() -> None:
    assert {api.key: api.module.rpartition(".")[2] for api in APIS} == dict(api_key_map)
