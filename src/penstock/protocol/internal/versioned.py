"""Data behind an int16 that says its version: values of coordinator logs, the consumer protocol,
control record keys, principals."""

from __future__ import annotations

import struct
from typing import TypeVar

from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol.codec import decode_from, encode_bytes
from penstock.protocol.internal.unknown import UnknownRecord
from penstock.protocol.schema import schema_of

T = TypeVar("T")

_INT16 = struct.Struct(">h")
VERSION_BYTES = _INT16.size


def read_int16(buffer: Buffer, what: str) -> int:
    """The int16 at the start, a version or type."""
    if len(buffer) < VERSION_BYTES:
        raise ProtocolError(
            f"{what}: {len(buffer)} bytes are too short for the int16 it begins with"
        )
    number: int = _INT16.unpack_from(buffer)[0]
    return number


def encode_behind(number: int, message: object, version: int) -> bytes:
    """The message behind an int16 of the caller's."""
    return _INT16.pack(number) + encode_bytes(message, version)


def decode_behind(cls: type[T], version: int, buffer: Buffer) -> T:
    """The message behind an int16 that was already read. All of the buffer must be used."""
    message, position = decode_from(cls, version, buffer, VERSION_BYTES)
    if position != len(buffer):
        raise ProtocolError(
            f"{cls.__name__} v{version}: {len(buffer) - position} bytes are left over after it"
        )
    return message


def encode_versioned(message: object, version: int | None = None) -> bytes:
    """The message behind its version; without one in its newest."""
    if version is None:
        version = schema_of(type(message)).versions.last
    return encode_behind(version, message, version)


def decode_versioned(cls: type[T], buffer: Buffer) -> T:
    version = read_int16(buffer, cls.__name__)
    if version not in schema_of(cls).versions:
        raise UnknownRecord(
            f"{cls.__name__} in version {version}, where {schema_of(cls).versions} are known"
        )
    return decode_behind(cls, version, buffer)
