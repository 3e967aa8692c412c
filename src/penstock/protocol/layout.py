"""The wire layout of one version of a message: its fields, their order, and their minimum sizes.

Both compilers read declarations through this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.primitives import RepeatedFormats
from penstock.protocol.schema import Field, fields_of, schema_of

# The struct format characters (big-endian) and the sizes of kinds of fixed width.
FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
WIDTHS = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}

# Formats of arrays of these kinds.
REPEATED = {kind: RepeatedFormats(code) for kind, code in FORMATS.items() if kind != "uuid"}

# The markers (null, present) in front of a nullable struct, by whether it is a tagged field. Kafka
# writes an int8, but an unsigned varint for a tagged field.
NULL_MARKERS = {False: (-1, 1), True: (0, 1)}


class Layout(NamedTuple):
    """One version of one message."""

    message: type
    version: int
    flexible: bool

    @property
    def label(self) -> str:
        """The name of the message in errors."""
        return f"{self.message.__name__} v{self.version}"

    def plain(self, cls: type) -> list[Field]:
        """Return the untagged fields, in order."""
        return [
            field
            for field in fields_of(cls)
            if field.tag is None and self.version in field.versions
        ]

    def tagged(self, cls: type) -> list[Field]:
        """Return the tagged fields in the order of their tags. They follow the others, and are
        written only if they differ from their defaults."""
        carried = (
            field
            for field in fields_of(cls)
            if field.tag is not None and self.version in field.versions
        )
        return sorted(carried, key=lambda field: field.tag or 0)

    def absent(self, cls: type) -> list[Field]:
        """Return the fields that this version does not carry."""
        return [field for field in fields_of(cls) if self.version not in field.versions]

    def nullable(self, field: Field) -> bool:
        return self.version in field.nullable

    def compact(self, field: Field) -> bool:
        """Return whether a field's length is an unsigned varint of length plus one, with zero for
        null."""
        return self.flexible and not field.never_compact

    def minimum_size(self, cls: type) -> int:
        """Return the minimum number of bytes of a struct. It bounds counts before anything is
        built."""
        return sum(self._minimum_field_size(field) for field in self.plain(cls)) + self.flexible

    def minimum_element_size(self, field: Field) -> int:
        return self._minimum_field_size(field._replace(is_array=False))

    def _minimum_field_size(self, field: Field) -> int:
        if field.is_array or field.kind in ("bytes", "records"):
            return 1 if self.compact(field) else 4
        if field.kind == "string":
            return 1 if self.compact(field) else 2
        if field.struct is not None:
            return 1 if self.nullable(field) else self.minimum_size(field.struct)
        return WIDTHS[field.kind]


def layout_of(message: type, version: int) -> Layout:
    schema = schema_of(message)
    if version not in schema.versions:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{message.__name__} has versions {schema.versions}, not {version}",
        )
    return Layout(message, version, version in schema.flexible)


def structs_of(cls: type) -> Iterator[type]:
    """Yield the class and every struct nested in it."""
    yield cls
    for field in fields_of(cls):
        if field.struct is not None:
            yield from structs_of(field.struct)
