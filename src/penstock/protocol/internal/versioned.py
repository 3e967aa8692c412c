"""Messages preceded by their version as int16: values of coordinator logs, the consumer protocol,
control record keys, principals."""

from __future__ import annotations

import struct
from typing import TypeVar

from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol.codec import decode_from, encode_bytes
from penstock.protocol.schema import schema_of

T = TypeVar("T")

_INT16 = struct.Struct(">h")
VERSION_BYTES = _INT16.size


class UnknownRecord(ProtocolError):
    """A well-formed record of a type or version that this release does not know. Coordinators skip
    it, as in Kafka."""


def read_int16(buffer: Buffer, name: str) -> int:
    """Return the int16 at the start, a version or type."""
    if len(buffer) < VERSION_BYTES:
        raise ProtocolError(f"{name}: {len(buffer)} bytes are too short for the leading int16")
    number: int = _INT16.unpack_from(buffer)[0]
    return number


def encode_after(number: int, message: object, version: int) -> bytes:
    """Encode a message preceded by an int16."""
    return _INT16.pack(number) + encode_bytes(message, version)


def decode_after(cls: type[T], version: int, buffer: Buffer) -> T:
    """Decode the message after an int16 that the caller has read. It must fill the buffer."""
    message, position = decode_from(cls, version, buffer, VERSION_BYTES)
    if position != len(buffer):
        raise ProtocolError(
            f"{cls.__name__} v{version}: {len(buffer) - position} bytes are left over after it"
        )
    return message


def encode_versioned(message: object, version: int | None = None) -> bytes:
    """Encode a message preceded by its version, by default its newest."""
    if version is None:
        version = schema_of(type(message)).versions.last
    return encode_after(version, message, version)


def decode_versioned(cls: type[T], buffer: Buffer) -> T:
    version = read_int16(buffer, cls.__name__)
    if version not in schema_of(cls).versions:
        raise UnknownRecord(
            f"unknown version {version} of {cls.__name__}, known are {schema_of(cls).versions}"
        )
    return decode_after(cls, version, buffer)
