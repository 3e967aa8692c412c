"""Varints and uuids."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol.primitives import (
    UVARINTS,
    encode_uvarint,
    encode_varint,
    encode_varlong,
    finish_uvarint,
    read_uvarint,
    read_varint,
    read_varlong,
    uuid_of,
)

Read = Callable[[Buffer, int], tuple[int, int]]


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_there_and_back(value: int) -> None:
    encoded = encode_uvarint(value)
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    assert read_uvarint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))
    assert UVARINTS[value] == encoded
    if value > 127:
        assert finish_uvarint(encoded, 1, encoded[0]) == (value, len(encoded))


@given(st.integers(-(2**31), 2**31 - 1))
def test_varints_there_and_back(value: int) -> None:
    encoded = encode_varint(value)
    assert len(encoded) <= 5
    assert read_varint(encoded, 0) == (value, len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_there_and_back(value: int) -> None:
    encoded = encode_varlong(value)
    assert len(encoded) <= 10
    assert read_varlong(encoded, 0) == (value, len(encoded))


def test_known_encodings() -> None:
    assert [encode_uvarint(value).hex() for value in (0, 127, 128, 300, 2**32 - 1)] == [
        "00",
        "7f",
        "8001",
        "ac02",
        "ffffffff0f",
    ]
    assert [encode_varint(value).hex() for value in (0, -1, 1, -2, 2**31 - 1, -(2**31))] == [
        "00",
        "01",
        "02",
        "03",
        "feffffff0f",
        "ffffffff0f",
    ]
    assert encode_varlong(-(2**63)).hex() == "ff" * 9 + "01"


@pytest.mark.parametrize("encode", [encode_uvarint, encode_varint, encode_varlong])
def test_values_out_of_range(encode: Callable[[int], bytes]) -> None:
    for value in (2**64, -(2**64)):
        with pytest.raises(ValueError, match="does not fit"):
            encode(value)


@pytest.mark.parametrize(
    ("read", "bits"), [(read_uvarint, 32), (read_varint, 32), (read_varlong, 64)]
)
def test_over_long_and_cut_varints(read: Read, bits: int) -> None:
    groups = -(-bits // 7)
    with pytest.raises(ProtocolError, match=f"longer than {bits} bits"):
        read(b"\x80" * groups + b"\0", 0)
    with pytest.raises(ProtocolError, match=f"longer than {bits} bits"):
        read(b"\xff" * (groups - 1) + b"\x7f", 0)
    with pytest.raises(IndexError):
        read(b"\x80", 0)


@given(st.binary(min_size=16, max_size=16))
def test_uuids(raw: bytes) -> None:
    assert uuid_of(raw) == UUID(bytes=raw)
    assert uuid_of(raw).bytes == raw
