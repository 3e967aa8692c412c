"""Varints and uuids."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.protocol.primitives import (
    UVARINTS,
    encode_uvarint,
    finish_uvarint,
    read_uvarint,
    uuid_of,
)


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_round_trip(value: int) -> None:
    encoded = encode_uvarint(value)
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    assert read_uvarint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))
    assert UVARINTS[value] == encoded
    if value > 127:
        assert finish_uvarint(encoded, 1, encoded[0]) == (value, len(encoded))


def test_known_encodings() -> None:
    assert [encode_uvarint(value).hex() for value in (0, 127, 128, 300, 2**32 - 1)] == [
        "00",
        "7f",
        "8001",
        "ac02",
        "ffffffff0f",
    ]


@pytest.mark.parametrize("value", [2**32, 2**64, -1])
def test_values_out_of_range_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_uvarint(value)


def test_overlong_and_truncated_varints_are_refused() -> None:
    for overlong in (b"\x80" * 5 + b"\0", b"\xff" * 4 + b"\x7f"):
        with pytest.raises(ProtocolError, match="longer than 32 bits"):
            read_uvarint(overlong, 0)
    with pytest.raises(IndexError):
        read_uvarint(b"\x80", 0)


@given(st.binary(min_size=16, max_size=16))
def test_uuids_round_trip(raw: bytes) -> None:
    assert uuid_of(raw) == UUID(bytes=raw)
    assert uuid_of(raw).bytes == raw
