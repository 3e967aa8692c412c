"""Penstock's batches read by other clients, and theirs by Penstock: kafka-python (plain, gzip),
aiokafka (every codec) and kio (plain)."""

from __future__ import annotations

import datetime
import importlib
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
from kio.records.readers import read_batch as kio_read_batch
from kio.records.schema import NewRecordBatch, RecordHeader
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_new_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from penstock.records.batch import read_header, validate
from penstock.records.build import NewRecord, build_batch, end_transaction_marker
from penstock.records.compression import Codec
from penstock.records.record import Record, records_of

# aiokafka has no type hints.
aiokafka_records: Any = importlib.import_module("aiokafka.record.default_records")

OPTIONAL_BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=12), OPTIONAL_BYTES), max_size=3).map(tuple)
# Both clients replace a timestamp of None by the current time, but accept 0; kio supports whole
# seconds only.
NEW_RECORDS = st.lists(
    st.builds(NewRecord, OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS, st.integers(0, 2**45)),
    min_size=1,
    max_size=70,
)
KAFKA_PYTHON_CODECS = [Codec.NONE, Codec.GZIP]


def as_records(new: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(new)
    ]


def from_theirs(record: Any) -> Record:
    headers = tuple((key, None if value is None else bytes(value)) for key, value in record.headers)
    return Record(record.offset, record.timestamp, record.key, record.value, headers)


def ours_from(batch: bytes) -> list[Record]:
    (header,) = validate(memoryview(batch), max_batch_bytes=len(batch))
    return list(records_of(batch, header))


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
@given(new=NEW_RECORDS, base_offset=st.integers(0, 2**40), transactional=st.booleans())
@settings(max_examples=30)
def test_kafka_python_reads_ours(
    codec: Codec, new: list[NewRecord], base_offset: int, transactional: bool
) -> None:
    batch = build_batch(
        new,
        base_offset=base_offset,
        codec=codec,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        leader_epoch=3,
        transactional=transactional,
    )
    theirs = DefaultRecordBatch(bytearray(batch))
    header = read_header(batch)
    assert theirs.validate_crc()
    assert (theirs.is_transactional, theirs.is_control_batch, theirs.compression_type) == (
        transactional,
        False,
        codec,
    )
    assert (
        theirs.producer_id,
        theirs.producer_epoch,
        theirs.base_sequence,
        theirs.leader_epoch,
    ) == (5, 6, 7, 3)
    assert (theirs.last_offset, theirs.last_sequence, theirs.next_offset) == (
        header.last_offset,
        header.last_sequence,
        header.next_offset,
    )
    assert (theirs.first_timestamp, theirs.max_timestamp, theirs.records_count) == (
        header.base_timestamp,
        header.max_timestamp,
        len(new),
    )
    assert [from_theirs(record) for record in theirs] == as_records(new, base_offset)


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
@given(new=NEW_RECORDS, transactional=st.booleans())
@settings(max_examples=30)
def test_we_read_kafka_python(codec: Codec, new: list[NewRecord], transactional: bool) -> None:
    builder = DefaultRecordBatchBuilder(2, int(codec), transactional, 5, 6, 7, 10_000_000)
    for i, record in enumerate(new):
        assert (
            builder.append(i, record.timestamp, record.key, record.value, list(record.headers))
            is not None
        )
    batch = bytes(builder.build())
    assert ours_from(batch) == as_records(new)
    header = read_header(batch)
    assert (
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
    ) == (5, 6, 7, transactional)


@given(new=NEW_RECORDS)
@settings(max_examples=30)
def test_batches_have_the_same_bytes_as_kafka_pythons(new: list[NewRecord]) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 10_000_000)
    for i, record in enumerate(new):
        builder.append(i, record.timestamp, record.key, record.value, list(record.headers))
    # kafka-python writes leader epoch 0, the Java producer -1; the broker overwrites both.
    assert build_batch(new, leader_epoch=read_header(bytes(builder.build())).leader_epoch) == bytes(
        builder.build()
    )


@pytest.mark.parametrize("codec", list(Codec))
@given(new=NEW_RECORDS, base_offset=st.integers(0, 2**40))
@settings(max_examples=30)
def test_aiokafka_reads_ours(codec: Codec, new: list[NewRecord], base_offset: int) -> None:
    batch = build_batch(new, base_offset=base_offset, codec=codec)
    theirs = aiokafka_records.DefaultRecordBatch(bytearray(batch))
    assert theirs.validate_crc()
    assert [from_theirs(record) for record in theirs] == as_records(new, base_offset)


@pytest.mark.parametrize("codec", list(Codec))
@given(new=NEW_RECORDS, transactional=st.booleans())
@settings(max_examples=30)
def test_we_read_aiokafka(codec: Codec, new: list[NewRecord], transactional: bool) -> None:
    builder = aiokafka_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=transactional,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        batch_size=10_000_000,
    )
    for i, record in enumerate(new):
        builder.append(
            i,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    batch = bytes(builder.build())
    assert ours_from(batch) == as_records(new)
    assert read_header(batch).is_transactional is transactional


@pytest.mark.parametrize("commit", [True, False])
def test_kafka_python_sees_our_markers_as_control_batches(commit: bool) -> None:
    marker = end_transaction_marker(
        commit=commit,
        producer_id=5,
        producer_epoch=6,
        coordinator_epoch=7,
        timestamp=8,
        base_offset=9,
    )
    batch = MemoryRecords(marker).next_batch()
    assert batch.is_control_batch
    assert batch.is_transactional
    (record,) = batch
    assert (record.offset, record.timestamp) == (9, 8)
    assert (record.commit, record.abort) == (commit, not commit)


def test_log_append_time_is_seen_by_kafka_python() -> None:
    batch = build_batch(
        [NewRecord(b"k", b"v", (), 1), NewRecord(b"k", b"v", (), 2)], append_time_ms=99
    )
    assert [
        (record.timestamp, record.timestamp_type) for record in DefaultRecordBatch(bytearray(batch))
    ] == [(99, 1), (99, 1)]


def kio_record(offset: int, record: NewRecord) -> KioRecord:
    headers = tuple(RecordHeader(key=key.encode(), value=value) for key, value in record.headers)
    time = TZAwareMicros.parse(
        datetime.datetime.fromtimestamp(record.timestamp / 1000, datetime.UTC)
    )
    return KioRecord(
        attributes=i8(0),
        timestamp=time,
        offset=i64(offset),
        key=record.key,
        value=record.value,
        headers=headers,
    )


SECONDS = NEW_RECORDS.map(
    lambda new: [record._replace(timestamp=record.timestamp // 2**15 * 1000) for record in new]
)


@given(new=SECONDS)
@settings(max_examples=30)
def test_kio_reads_ours(new: list[NewRecord]) -> None:
    batch = build_batch(new, producer_id=5, producer_epoch=6, base_sequence=7)
    theirs, size = kio_read_batch(batch, 0)
    assert size == len(batch)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (5, 6, 7)
    assert list(theirs.records) == [kio_record(i, record) for i, record in enumerate(new)]


@given(new=SECONDS)
@settings(max_examples=30)
def test_we_read_kio(new: list[NewRecord]) -> None:
    buffer = io.BytesIO()
    records = tuple(kio_record(i, record) for i, record in enumerate(new))
    write_new_batch(
        buffer,
        NewRecordBatch(
            producer_id=i64(5),
            producer_epoch=i16(6),
            base_sequence=i32(7),
            records=records,
            attributes=i16(0),
        ),
    )
    assert ours_from(buffer.getvalue()) == as_records(new)
