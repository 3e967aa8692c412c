"""The header of a batch, the checks before an append, and the fields that a broker writes."""

from __future__ import annotations

import copy
import pickle
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, KafkaError
from penstock.records.batch import (
    HEADER,
    BatchHeader,
    CorruptBatch,
    batches,
    crc_matches,
    crc_of,
    patch,
    patch_log_append_time,
    read_header,
    validate,
)
from penstock.records.build import build_batch, end_transaction_marker
from penstock.records.compression import Codec
from penstock.records.record import rows_of

BIG = 2**31 - 1
THREE = build_batch([(b"a", b"1", (), 1000), (None, b"2", (), 3000), (b"c", None, (), 2000)])
MARKER = end_transaction_marker(
    commit=True, producer_id=7, producer_epoch=1, coordinator_epoch=3, timestamp=5
)


def with_fields(batch: bytes = THREE, **fields: Any) -> bytes:
    """Return the batch with other header fields and a matching CRC."""
    header = read_header(batch)._replace(**fields)
    changed = bytearray(HEADER.pack(*header) + batch[HEADER.size :])
    struct.pack_into(">I", changed, 17, crc_of(changed, 0, len(changed)))
    return bytes(changed)


def at_offset(batch: bytes, base_offset: int) -> bytes:
    moved = bytearray(batch)
    patch(moved, 0, base_offset, 0)
    return bytes(moved)


def refusal(payload: bytes, *, max_batch_bytes: int = BIG, from_client: bool = True) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        validate(memoryview(payload), max_batch_bytes=max_batch_bytes, from_client=from_client)
    return caught.value


def test_header_fields_are_read() -> None:
    header = BatchHeader(1, 49, 3, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    wire = HEADER.pack(*header)
    assert HEADER.size == len(wire) == 61
    assert read_header(wire) == header
    assert read_header(b"xy" + wire, 2) == header
    assert wire.hex(" ", 1).split()[7:17] == [
        "01",
        "00",
        "00",
        "00",
        "31",
        "00",
        "00",
        "00",
        "03",
        "02",
    ]
    assert wire[17:27].hex() == "00000005" + "0006" + "00000007"
    assert wire[27:51].hex() == "0000000000000008" + "0000000000000009" + "000000000000000a"
    assert wire[51:].hex() == "000b" + "0000000c" + "0000000d"


def test_derived_fields() -> None:
    header = read_header(THREE)
    assert header.size == len(THREE)
    assert (header.last_offset, header.next_offset, header.record_count) == (2, 3, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 3000)
    assert (header.codec, header.log_append_time, header.is_transactional, header.is_control) == (
        0,
        False,
        False,
        False,
    )
    assert not header.has_producer
    assert header.last_sequence == -1


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        (0x08, "log_append_time"),
        (0x10, "is_transactional"),
        (0x20, "is_control"),
        (0x40, "has_delete_horizon"),
    ],
)
def test_flags(attributes: int, name: str) -> None:
    header = read_header(THREE)
    assert getattr(header, name) is False
    assert getattr(header._replace(attributes=attributes), name) is True
    assert getattr(header._replace(attributes=0x7F ^ attributes), name) is False


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 2, 2), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 5, 3), (-1, 2, -1)],
)
def test_sequences_wrap_to_zero(base: int, delta: int, last: int) -> None:
    assert (
        read_header(THREE)._replace(base_sequence=base, last_offset_delta=delta).last_sequence
        == last
    )


@pytest.mark.parametrize(
    ("fields", "offset", "timestamp"),
    [
        ({}, 100, 1000),
        ({}, 105, 2000),
        ({}, 110, 3000),
        ({}, 90, 1000),  # compaction has removed the records before
        ({}, 120, 3000),
        ({"last_offset_delta": 0}, 100, 1000),
        ({"max_timestamp": -1}, 105, -1),
        ({"attributes": 0x08}, 100, 3000),  # log append time
        # The base timestamp is the delete horizon, a day later (KIP-534).
        ({"attributes": 0x40, "base_timestamp": 86_400_000}, 100, 3000),
    ],
)
def test_the_time_of_a_record_is_estimated_from_the_header(
    fields: dict[str, int], offset: int, timestamp: int
) -> None:
    header = read_header(THREE)._replace(base_offset=100, last_offset_delta=10)
    assert header._replace(**fields).timestamp_at(offset) == timestamp


def test_producer_id_zero_is_a_producer() -> None:
    assert read_header(THREE)._replace(producer_id=0).has_producer


@pytest.mark.parametrize("position", [1, 60, 61, 1000])
def test_short_header_is_corrupt(position: int) -> None:
    with pytest.raises(CorruptBatch, match="needs 61 bytes"):
        read_header(THREE[:61], position)


def test_corrupt_batch_survives_pickle_and_copy() -> None:
    error = CorruptBatch("why")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is CorruptBatch
        assert (twin.code, twin.message) == (ErrorCode.CORRUPT_MESSAGE, "why")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_crc_of_any_buffer(kind: type[bytes]) -> None:
    buffer = kind(b"xyz" + THREE + b"after")
    header = read_header(buffer, 3)
    assert crc_of(buffer, 3, len(THREE)) == header.crc
    assert crc_matches(buffer, 3, header)


@given(st.integers(21, len(THREE) - 1), st.integers(0, 7))
def test_crc_detects_every_bit_it_covers(index: int, bit: int) -> None:
    damaged = bytearray(THREE)
    damaged[index] ^= 1 << bit
    assert not crc_matches(damaged, 0, read_header(damaged))


def test_patch_leaves_the_crc_valid() -> None:
    buffer = bytearray(b"before" + THREE + b"after")
    patch(memoryview(buffer), 6, 1234567890123, 42)
    header = read_header(buffer, 6)
    assert (header.base_offset, header.leader_epoch) == (1234567890123, 42)
    assert header._replace(base_offset=0, leader_epoch=-1) == read_header(THREE)
    assert crc_matches(buffer, 6, header)
    assert buffer.startswith(b"before")
    assert buffer.endswith(b"after")


def test_patch_log_append_time() -> None:
    buffer = bytearray(b"before" + THREE + b"after")
    given_back = patch_log_append_time(memoryview(buffer), 6, read_header(buffer, 6), 777)
    header = read_header(buffer, 6)
    assert given_back == header
    assert header.log_append_time
    assert (header.base_timestamp, header.max_timestamp) == (1000, 777)
    assert crc_matches(buffer, 6, header)
    assert {row[1] for row in rows_of(buffer, header, 6)} == {777}
    assert buffer.startswith(b"before")
    assert buffer.endswith(b"after")


def test_batches_stops_at_an_incomplete_batch() -> None:
    buffer = THREE + MARKER + THREE
    whole = [
        (0, read_header(THREE)),
        (len(THREE), read_header(MARKER)),
        (len(THREE) + len(MARKER), read_header(THREE)),
    ]
    assert list(batches(buffer)) == whole
    assert list(batches(buffer, len(THREE))) == whole[1:]
    for cut in range(1, len(THREE)):
        assert list(batches(buffer[:-cut])) == whole[:2]
    assert list(batches(b"")) == []


def test_batches_does_not_loop_on_a_bad_length() -> None:
    for length in (48, 0, -12, -(2**31)):
        broken = HEADER.pack(*read_header(THREE)._replace(batch_length=length))
        with pytest.raises(CorruptBatch, match="less than its header"):
            list(batches(broken))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_valid_batch_is_accepted_from_a_client(codec: Codec) -> None:
    batch = build_batch(
        [(b"k", b"v" * 500, (("h", b"x"),), 9)],
        codec=codec,
        producer_id=0,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    assert validate(memoryview(batch), max_batch_bytes=len(batch)) == [read_header(batch)]


@pytest.mark.parametrize(
    ("payload", "code", "reason"),
    [
        (b"", ErrorCode.INVALID_RECORD, "exactly one record batch"),
        (THREE + THREE, ErrorCode.INVALID_RECORD, "not 2"),
        (THREE[:16], ErrorCode.INVALID_RECORD, "too few"),
        (THREE[:60], ErrorCode.INVALID_RECORD, "but 60 are left"),
        (THREE[:-1], ErrorCode.INVALID_RECORD, "are left"),
        (THREE + b"\0", ErrorCode.CORRUPT_MESSAGE, "too few"),
        (
            THREE + bytes(16) + b"\2" + bytes(44),
            ErrorCode.CORRUPT_MESSAGE,
            "claims 12 bytes, less than its header",
        ),
        (with_fields(batch_length=48)[:60], ErrorCode.CORRUPT_MESSAGE, "claims 60 bytes"),
        (with_fields(batch_length=-100), ErrorCode.CORRUPT_MESSAGE, "less than its header"),
        (with_fields(batch_length=BIG), ErrorCode.INVALID_RECORD, "are left"),
        (with_fields(magic=0), ErrorCode.INVALID_RECORD, "format v0"),
        (with_fields(magic=1), ErrorCode.INVALID_RECORD, "format v1"),
        (with_fields(magic=1)[:40], ErrorCode.INVALID_RECORD, "format v1"),
        (with_fields(magic=3), ErrorCode.CORRUPT_MESSAGE, "unknown magic 3"),
        (with_fields(magic=-1), ErrorCode.CORRUPT_MESSAGE, "unknown magic"),
        (THREE[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE, "CRC"),
        (with_fields(attributes=5), ErrorCode.UNKNOWN_SERVER_ERROR, "codec 5"),
        (with_fields(attributes=7), ErrorCode.UNKNOWN_SERVER_ERROR, "codec 7"),
        (with_fields(base_offset=1), ErrorCode.INVALID_RECORD, "base offset"),
        (with_fields(last_offset_delta=-1, record_count=0), ErrorCode.INVALID_RECORD, "delta"),
        (with_fields(record_count=0), ErrorCode.INVALID_RECORD, "cannot hold 0 records"),
        (with_fields(record_count=-3), ErrorCode.INVALID_RECORD, "cannot hold -3 records"),
        (with_fields(record_count=2), ErrorCode.INVALID_RECORD, "cannot end at"),
        (with_fields(record_count=4), ErrorCode.INVALID_RECORD, "cannot end at"),
        (
            with_fields(record_count=BIG, last_offset_delta=BIG - 1),
            ErrorCode.INVALID_RECORD,
            "bytes cannot hold",
        ),
        (
            with_fields(THREE[:61], batch_length=49, attributes=1),
            ErrorCode.INVALID_RECORD,
            "0 bytes cannot hold",
        ),
        (with_fields(attributes=0x20), ErrorCode.INVALID_RECORD, "control"),
        (MARKER, ErrorCode.INVALID_RECORD, "control"),
        (with_fields(attributes=0x08), ErrorCode.INVALID_TIMESTAMP, "LogAppendTime"),
        (with_fields(attributes=0x10), ErrorCode.INVALID_RECORD, "needs a producer id"),
        (
            with_fields(producer_id=1, producer_epoch=-1, base_sequence=0),
            ErrorCode.INVALID_RECORD,
            "epoch",
        ),
        (
            with_fields(producer_id=1, producer_epoch=0, base_sequence=-1),
            ErrorCode.INVALID_RECORD,
            "sequence",
        ),
    ],
)
def test_invalid_batches_of_a_client_are_refused(
    payload: bytes, code: ErrorCode, reason: str
) -> None:
    error = refusal(payload)
    assert error.code is code
    assert reason in error.message


def test_the_error_for_a_large_batch_has_both_sizes() -> None:
    error = refusal(THREE, max_batch_bytes=len(THREE) - 1)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(len(THREE)) in error.message
    assert str(len(THREE) - 1) in error.message


def test_replicated_data_may_have_gaps_and_markers() -> None:
    compacted = with_fields(at_offset(THREE, 10), last_offset_delta=9)
    emptied = with_fields(at_offset(THREE, 20)[:61], batch_length=49, record_count=0)
    payload = (
        compacted
        + emptied
        + at_offset(MARKER, 23)
        + at_offset(THREE, 100)
        + with_fields(at_offset(THREE, 103), attributes=0x08)
    )
    found = validate(memoryview(payload), max_batch_bytes=BIG, from_client=False)
    assert [(header.base_offset, header.last_offset) for header in found] == [
        (10, 19),
        (20, 22),
        (23, 23),
        (100, 102),
        (103, 105),
    ]
    assert found == [header for _, header in batches(payload)]


def test_an_empty_replicated_buffer_is_valid() -> None:
    assert validate(memoryview(b""), max_batch_bytes=BIG, from_client=False) == []


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (THREE + THREE, ErrorCode.CORRUPT_MESSAGE),
        (at_offset(THREE, 10) + at_offset(THREE, 12), ErrorCode.CORRUPT_MESSAGE),
        (at_offset(THREE, -1), ErrorCode.CORRUPT_MESSAGE),
        (at_offset(THREE, 2**63 - 2), ErrorCode.CORRUPT_MESSAGE),
        (with_fields(last_offset_delta=-1), ErrorCode.CORRUPT_MESSAGE),
        (with_fields(record_count=-1), ErrorCode.CORRUPT_MESSAGE),
        (with_fields(record_count=4), ErrorCode.CORRUPT_MESSAGE),
        (with_fields(last_offset_delta=BIG, record_count=1000), ErrorCode.CORRUPT_MESSAGE),
        (THREE[:-1], ErrorCode.CORRUPT_MESSAGE),
        (THREE + b"\0", ErrorCode.CORRUPT_MESSAGE),
        (with_fields(magic=1), ErrorCode.INVALID_RECORD),
        (with_fields(attributes=6), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_invalid_replicated_batches_are_refused(payload: bytes, code: ErrorCode) -> None:
    assert refusal(payload, from_client=False).code is code


@given(st.binary(max_size=200), st.booleans())
def test_noise_raises_only_kafka_errors(noise: bytes, from_client: bool) -> None:
    try:
        found = validate(memoryview(noise), max_batch_bytes=BIG, from_client=from_client)
    except KafkaError:
        return
    assert not noise
    assert found == []


@given(st.integers(0, len(THREE) - 1), st.integers(1, 255), st.booleans())
def test_a_damaged_byte_is_detected_or_harmless(index: int, flip: int, from_client: bool) -> None:
    damaged = bytearray(THREE)
    damaged[index] ^= flip
    try:
        validate(memoryview(damaged), max_batch_bytes=BIG, from_client=from_client)
    except KafkaError:
        return
    # The CRC does not cover base offset and leader epoch. The leader overwrites them; a follower
    # checks only that base offsets increase.
    assert index in range(12, 16) or (not from_client and index < 8)
