"""Encoding and decoding of records, and every kind of invalid record."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import Buffer
from penstock.records.batch import HEADER, BatchHeader, CorruptBatch, read_header
from penstock.records.build import NewRecord, build_batch, control_key, end_transaction_marker
from penstock.records.compression import Codec, compress
from penstock.records.record import (
    ControlRecord,
    Record,
    control_kind,
    coordinator_epoch,
    read_records,
    records_of,
    rows_of,
)
from penstock.records.varint import encode

OPTIONAL_BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=20), OPTIONAL_BYTES), max_size=4).map(tuple)
NEW_RECORDS = st.lists(
    st.builds(NewRecord, OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS, st.integers(-1, 2**60)),
    min_size=1,
    max_size=80,
)


def header_of(
    payload: bytes, *, count: int, codec: Codec = Codec.NONE, last_delta: int | None = None
) -> BatchHeader:
    last = count - 1 if last_delta is None else last_delta
    return BatchHeader(
        100,
        HEADER.size - 12 + len(payload),
        0,
        2,
        0,
        int(codec),
        last,
        1000,
        1000,
        -1,
        -1,
        -1,
        count,
    )


def rows(
    payload: bytes, *, count: int = 1, codec: Codec = Codec.NONE, last_delta: int | None = None
) -> list[object]:
    header = header_of(payload, count=count, codec=codec, last_delta=last_delta)
    return list(rows_of(HEADER.pack(*header) + payload, header))


def record(*fields: bytes | int, length: int | None = None) -> bytes:
    """Return a record: attributes, then each int as a varint and bytes unchanged."""
    body = b"\0" + b"".join(encode(field) if isinstance(field, int) else field for field in fields)
    return encode(len(body) if length is None else length) + body


def refusal(payload: bytes, *, count: int = 1, last_delta: int | None = None) -> str:
    with pytest.raises(KafkaError) as caught:
        rows(payload, count=count, last_delta=last_delta)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    return caught.value.message


@pytest.mark.parametrize("codec", list(Codec))
@given(new=NEW_RECORDS, base_offset=st.integers(0, 2**40), before=st.binary(max_size=3))
@settings(max_examples=40)
def test_round_trip(codec: Codec, new: list[NewRecord], base_offset: int, before: bytes) -> None:
    batch = before + build_batch(new, base_offset=base_offset, codec=codec) + b"after"
    header = read_header(batch, len(before))
    found = list(records_of(batch, header, len(before)))
    assert found == [
        Record(base_offset + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(new)
    ]
    assert (header.record_count, header.max_timestamp) == (len(new), max(r.timestamp for r in new))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 2**20, 2**21 + 5])
def test_varints_of_every_length(size: int) -> None:
    new = [NewRecord(b"k" * size, b"v" * size, (("n" * min(size, 9000), b"h" * size),), 10**12)] * 2
    batch = build_batch(new)
    assert [tuple(row[2:]) for row in rows_of(batch, read_header(batch))] == [tuple(new[0][:3])] * 2


def test_deltas_of_every_length() -> None:
    times = [0, 1, -1, 63, -64, 64, 8191, 8192, 2**20, 2**31, 2**40, 2**62]
    new = [NewRecord(None, None, (), 5 + times[i % len(times)]) for i in range(20_000)]
    batch = build_batch(new)
    assert [(row[0], row[1]) for row in rows_of(batch, read_header(batch))] == [
        (i, r.timestamp) for i, r in enumerate(new)
    ]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_type_decodes_to_bytes(kind: type[bytes]) -> None:
    batch: Buffer = kind(build_batch([NewRecord(b"k", b"v", (("h", b"x"),), 1)]))
    (only,) = records_of(batch, read_header(batch))
    assert only == Record(0, 1, b"k", b"v", (("h", b"x"),))
    assert type(only.key) is type(only.value) is bytes


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = build_batch(
        [NewRecord(b"k", b"v", (), 1), NewRecord(b"k", b"v", (), 2)], append_time_ms=99
    )
    assert [r.timestamp for r in records_of(batch, read_header(batch))] == [99, 99]


def test_compaction_leaves_gaps() -> None:
    payload = record(0, 3, 1, b"a", -1, 0) + record(5, 7, -1, 1, b"b", 0)
    assert rows(payload, count=2, last_delta=9) == [
        (103, 1000, b"a", None, ()),
        (107, 1005, None, b"b", ()),
    ]


def test_an_emptied_batch_has_no_records() -> None:
    assert rows(b"", count=0, last_delta=9) == []
    assert rows(b"", count=0, codec=Codec.GZIP, last_delta=9) == []


def test_a_header_key_that_is_not_utf8_is_replaced() -> None:
    assert rows(record(0, 0, -1, -1, 1, 2, b"a\xff", -1)) == [
        (100, 1000, None, None, (("a\ufffd", None),))
    ]


def test_lengths_below_minus_one_are_null_as_in_kafka() -> None:
    assert rows(record(0, 0, -2, -70, 0)) == [(100, 1000, None, None, ())]


GOOD = record(0, 0, 1, b"k", 1, b"v", 0)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (record(0, 0, 1, b"k", 1, b"v", 0, length=-1), "claims -1 bytes"),
        (record(0, 0, 1, b"k", 1, b"v", 0, length=100), "but 8 are left"),
        (record(0, 0, 1, b"k", 1, b"v", 0, length=7), "its length says 8"),
        (GOOD[:-1], "claims 8 bytes"),
        (GOOD + b"\0", "1 bytes are left"),
        (GOOD + GOOD, "bytes are left"),
        (record(0, 0, 99, b"k", 1, b"v", 0), "index out of range"),
        (record(0, 0, 1, b"k", 99, b"v", 0), "index out of range"),
        (record(0, 0, 2**62, b"k", 1, b"v", 0), "index out of range"),
        (record(0, 0, 1, b"k", 0, b"v", 0), "headers"),
        (record(0, -1, 1, b"k", 1, b"v", 0), "offset delta -1"),
        (record(0, 1, 1, b"k", 1, b"v", 0), "offset delta 1"),
        (record(0, 0, 1, b"k", 1, b"v", -1), "cannot hold -1 headers"),
        (record(0, 0, 1, b"k", 1, b"v", 1), "cannot hold 1 headers"),
        (record(0, 0, 1, b"k", 1, b"v", 2**31), "headers"),
        (record(0, 0, 1, b"k", 1, b"v", 1, -1, -1), "header key of -1"),
        (record(0, 0, 1, b"k", 1, b"v", 1, 9, b"h", -1), "header key of 9"),
        (record(0, 0, 1, b"k", 1, b"v", 1, 1, b"h", 9), "header value of 9"),
        (record(0, 0, 1, b"k", 1, b"v", 1, 1, b"h", -1, b"x"), "its length says"),
        (record(2**63 - 1, 0, 1, b"k", 1, b"v", 0), "does not fit in 64 bits"),
        (record(b"\xff" * 12, 0, 1, b"k", 1, b"v", 0), "more than 64 bits"),
    ],
)
def test_bad_records(payload: bytes, reason: str) -> None:
    assert reason in refusal(payload)


def test_offsets_must_increase() -> None:
    again = GOOD + GOOD
    assert "offset delta 0 cannot follow 0" in refusal(again, count=2)


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_a_count_larger_than_the_bytes_can_hold(count: int) -> None:
    assert "cannot hold" in refusal(GOOD, count=count, last_delta=2**31 - 1)


def test_a_count_beyond_the_records() -> None:
    assert "damaged" in refusal(GOOD + record(0, 1, 50, b"k" * 50, -1, 0), count=3)


def test_an_incomplete_batch() -> None:
    batch = build_batch([NewRecord(b"k", b"v")])
    with pytest.raises(CorruptBatch, match="are left"):
        rows_of(batch[:-1], read_header(batch))
    with pytest.raises(CorruptBatch, match="claims 60 bytes"):
        rows_of(batch, read_header(batch)._replace(batch_length=48))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec(codec: int) -> None:
    batch = build_batch([NewRecord(b"k", b"v")])
    with pytest.raises(KafkaError) as caught:
        rows_of(batch, read_header(batch)._replace(attributes=codec))
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_the_limit_on_decompressed_bytes() -> None:
    batch = build_batch([NewRecord(b"k", bytes(100_000))], codec=Codec.ZSTD)
    header = read_header(batch)
    assert len(rows_of(batch, header, limit=101_000)) == 1
    with pytest.raises(CorruptBatch):
        rows_of(batch, header, limit=99_000)


def test_read_records_skips_markers_and_an_incomplete_batch() -> None:
    first = build_batch([NewRecord(b"a", b"1", (), 5)], base_offset=7)
    second = build_batch([NewRecord(b"b", b"2", (), 6)], base_offset=9, codec=Codec.LZ4)
    marker = end_transaction_marker(
        commit=False,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=8,
    )
    assert list(read_records(first + marker + second + first[:-1])) == [
        Record(7, 5, b"a", b"1"),
        Record(9, 6, b"b", b"2"),
    ]


@pytest.mark.parametrize(
    "kind", [kind for kind in ControlRecord if kind is not ControlRecord.UNKNOWN]
)
def test_control_kinds(kind: ControlRecord) -> None:
    assert control_kind(control_key(kind)) is kind


@pytest.mark.parametrize(("key", "kind"), [("00000007", -1), ("0000ffff", -1), ("0001000100", 1)])
def test_later_control_keys_are_read_or_unknown(key: str, kind: int) -> None:
    assert control_kind(bytes.fromhex(key)) is ControlRecord(kind)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", struct.pack(">hh", -1, 0)])
def test_bad_control_keys(key: bytes | None) -> None:
    with pytest.raises(KafkaError) as caught:
        control_kind(key)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0", struct.pack(">hi", -1, 0)])
def test_bad_marker_values(value: bytes | None) -> None:
    with pytest.raises(KafkaError) as caught:
        coordinator_epoch(value)
    assert caught.value.code is ErrorCode.INVALID_RECORD


FUZZED = [
    NewRecord(b"key%d" % i, b"value" * i, (("h", b"x" * i), ("n", None)) * (i % 3), 1000 + 77 * i)
    for i in range(12)
]


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.data())
@settings(max_examples=150)
def test_fuzzed_batches_give_records_or_kafka_errors(codec: Codec, data: st.DataObject) -> None:
    """Damage before compression too, so that it reaches the record decoder and not only the
    codec."""
    batch = bytearray(build_batch(FUZZED))
    changes = st.lists(
        st.tuples(st.integers(HEADER.size, len(batch) - 1), st.integers(0, 255)), max_size=3
    )
    for index, byte in data.draw(changes):
        batch[index] = byte
    header = read_header(batch)
    payload = bytearray(compress(codec, batch[HEADER.size :]))
    for index, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(payload) - 1), st.integers(0, 255)), max_size=1)
    ):
        payload[index] = byte
    header = header._replace(
        batch_length=HEADER.size - 12 + len(payload),
        attributes=int(codec),
        record_count=data.draw(st.sampled_from([12, 12, 12, 11, 13, 2**31 - 1, -1])),
    )
    try:
        found = rows_of(HEADER.pack(*header) + payload, header, limit=100_000)
    except KafkaError:
        return
    offsets = [row[0] for row in found]
    assert len(found) == header.record_count
    assert offsets == sorted(set(offsets))
    assert all(0 <= offset <= header.last_offset for offset in offsets)


@given(st.binary(max_size=120), st.integers(1, 5))
def test_noise_gives_records_or_kafka_errors(payload: bytes, count: int) -> None:
    try:
        found = rows(payload, count=count, last_delta=2**31 - 1)
    except KafkaError:
        return
    assert len(found) == count
