"""Unsigned variable-length integers and uuids. Signed varints occur in records only
(`records.varint`).

Compiled codecs, headers and record batches use these. Reading past the end raises IndexError; the
decoder of a message turns it into a ProtocolError that names the message.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from uuid import UUID

from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.limits import MAX_CACHED_UUIDS, MAX_KEPT_FORMATS, MAX_VARINT_BYTES


def encode_uvarint(value: int) -> bytes:
    """Encode an unsigned varint: seven bits per byte, the lowest first."""
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} does not fit an unsigned varint of 32 bits")
    # Most lengths of record batches take two or three bytes.
    if 0x80 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if 0x4000 <= value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the value at a position, and the position after it."""
    value = 0
    for index in range(MAX_VARINT_BYTES):
        group = buffer[position + index]
        value |= (group & 0x7F) << 7 * index
        if group < 0x80:
            if value >> 32:
                break
            return value, position + index + 1
    raise ProtocolError(f"the varint at byte {position} is longer than 32 bits")


def finish_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Return the value whose first byte, above 127, precedes `position`, and the position after it.

    Compiled decoders call this for every length and count of more than one byte. Unrolled, it takes
    a third of the time of the loop in `read_uvarint`.
    """
    second = buffer[position]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 1
    third = buffer[position + 1]
    if third < 0x80:
        return first & 0x7F | (second & 0x7F) << 7 | third << 14, position + 2
    return read_uvarint(buffer, position - 1)


class UvarintTable(dict[int, bytes]):
    """Unsigned varints by value. A small value, as nearly all lengths and counts are, costs one
    lookup."""

    def __init__(self) -> None:
        super().__init__((value, encode_uvarint(value)) for value in range(256))

    def __missing__(self, value: int) -> bytes:
        return encode_uvarint(value)


UVARINTS = UvarintTable()


class RepeatedFormats(dict[int, struct.Struct]):
    """`formats[n]` packs and unpacks n numbers of one kind. Formats of short lists, as of replicas
    and partitions, are cached."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> struct.Struct:
        format_ = struct.Struct(f">{count}{self._code}")
        if count <= MAX_KEPT_FORMATS:
            self[count] = format_
        return format_


@lru_cache(maxsize=MAX_CACHED_UUIDS)
def uuid_of(raw: bytes) -> UUID:
    """Return the UUID of 16 bytes. Cached, because building one takes over a microsecond and topic
    ids repeat."""
    return UUID(bytes=raw)
