"""What one version of a message looks like on the wire: which fields it carries, in which order,
and how small they can be.

Both compilers read declarations through this file. It must never know of generated source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.primitives import RepeatedFormats
from penstock.protocol.schema import Field, fields_of, schema_of

# Kinds of a fixed width, as struct's format characters (big-endian), and their widths.
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

# For arrays of them.
REPEATED = {kind: RepeatedFormats(code) for kind, code in FORMATS.items() if kind != "uuid"}

# What stands before a nullable struct: null, present. Kafka writes an int8, but an unsigned varint
# where the struct is a tagged field.
NULL_MARKERS = {False: (-1, 1), True: (0, 1)}


class Layout(NamedTuple):
    """One version of one message."""

    message: type
    version: int
    flexible: bool

    @property
    def label(self) -> str:
        """How errors call it."""
        return f"{self.message.__name__} v{self.version}"

    def plain(self, cls: type) -> list[Field]:
        """The fields that stand one after the other."""
        return [
            field
            for field in fields_of(cls)
            if field.tag is None and self.version in field.versions
        ]

    def tagged(self, cls: type) -> list[Field]:
        """The fields at the struct's end that are written only where they differ from their
        default, in the order of their tags."""
        carried = (
            field
            for field in fields_of(cls)
            if field.tag is not None and self.version in field.versions
        )
        return sorted(carried, key=lambda field: field.tag or 0)

    def absent(self, cls: type) -> list[Field]:
        """The fields that this version does not carry."""
        return [field for field in fields_of(cls) if self.version not in field.versions]

    def nullable(self, field: Field) -> bool:
        return self.version in field.nullable

    def compact(self, field: Field) -> bool:
        """Whether its length is an unsigned varint, one more than the length, with zero for
        null."""
        return self.flexible and not field.never_compact

    def minimum_size(self, cls: type) -> int:
        """The fewest bytes that a struct can take: with it a count can be checked before anything
        is built."""
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
    """The class itself and every struct nested in it."""
    yield cls
    for field in fields_of(cls):
        if field.struct is not None:
            yield from structs_of(field.struct)
