"""Signed (zigzag) varints, the format of lengths and deltas in records: encoding, and decoding of
values beyond one byte."""

from __future__ import annotations

from collections.abc import Callable

_INT64 = 2**63
_MAX_BITS = 70


def _encode(value: int) -> bytes:
    if not -_INT64 <= value < _INT64:
        raise ValueError(f"{value} does not fit in 64 bits")
    left = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


class _Short(dict[int, bytes]):
    """Cached encodings from -1 (null) to the largest value of two bytes: the lengths, counts and
    deltas of most records."""

    def __missing__(self, value: int) -> bytes:
        encoded = _encode(value)
        if -1 <= value < 8192:
            self[value] = encoded
        return encoded


# Encodes an int64. The varint of an int32 has the same bytes.
encode: Callable[[int], bytes] = _Short().__getitem__

# Maps every unsigned number of one or two bytes to its value: 0, -1, 1, -2 and so on.
_ZIGZAG = [0] * (1 << 14)
_ZIGZAG[::2] = range(1 << 13)
_ZIGZAG[1::2] = range(-1, -(1 << 13) - 1, -1)
ZIGZAG = tuple(_ZIGZAG)


def decode(data: bytes, position: int) -> tuple[int, int]:
    """Return the value at a position and the position after it. Raises IndexError past the end of
    data, ValueError for a value beyond int64."""
    byte = data[position]
    if byte < 0x80:
        return ZIGZAG[byte], position + 1
    unsigned = byte & 0x7F
    shift = 7
    while shift < _MAX_BITS:
        position += 1
        byte = data[position]
        if byte < 0x80:
            unsigned |= byte << shift
            if unsigned >> 64:
                break
            return (unsigned >> 1) ^ -(unsigned & 1), position + 1
        unsigned |= (byte & 0x7F) << shift
        shift += 7
    raise ValueError("a varint has more than 64 bits")
