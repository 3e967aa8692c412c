"""Zigzag varints against known bytes, and both directions against each other."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record.util import decode_varint, encode_varint

from penstock.records.varint import ZIGZAG, decode, encode

INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_known_bytes(value: int, wire: str) -> None:
    assert encode(value).hex() == wire
    assert decode(bytes.fromhex(wire), 0) == (value, len(wire) // 2)


@given(INT64, st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_at_any_position(value: int, before: bytes, after: bytes) -> None:
    wire = encode(value)
    assert decode(before + wire + after, len(before)) == (value, len(before) + len(wire))


@given(INT64)
@example(2**40)
def test_agrees_with_kafka_python(value: int) -> None:
    theirs = bytearray()
    encode_varint(value, theirs.append)
    assert encode(value) == theirs
    assert decode_varint(bytearray(encode(value)), 0) == (value, len(theirs))


def test_the_table_has_all_values_of_two_bytes() -> None:
    assert len(ZIGZAG) == 1 << 14
    assert all(decode(encode(value), 0)[0] == value for value in ZIGZAG)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_values_beyond_64_bits_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit in 64 bits"):
        encode(value)


@pytest.mark.parametrize("wire", ["80" * 10 + "01", "ff" * 20, "ff" * 9 + "02"])
def test_over_long_varints_are_refused(wire: str) -> None:
    with pytest.raises(ValueError, match="more than 64 bits"):
        decode(bytes.fromhex(wire), 0)


@pytest.mark.parametrize("wire", ["", "80", "ffff"])
def test_reading_past_the_end_raises_index_error(wire: str) -> None:
    with pytest.raises(IndexError):
        decode(bytes.fromhex(wire), 0)
