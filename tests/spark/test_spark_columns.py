"""Decoding with both kernels: built batches, batches of Apache Kafka, ranges, limits, and corrupt
batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, KafkaError
from penstock.log.index import TXN_ENTRY
from penstock.records.batch import crc_of, write_crc
from penstock.records.build import NewRecord, build_batch, end_transaction_marker
from penstock.records.compression import Codec
from penstock.records.record import Headers, Record
from penstock.spark.kernel import columns
from penstock.spark.kernel.columns import SCHEMA, SCHEMA_WITH_HEADERS, Decoded, decode
from tests.fixtures.kafka_wrote import Partition, partition, partitions

pytestmark = pytest.mark.usefixtures("kernel")

END = 2**62
NOW = 1_700_000_000_000
WROTE = partitions()


def decoded(
    data: bytes,
    start: int = 0,
    end: int = END,
    aborted: Iterable[tuple[int, int]] = (),
    *,
    headers: bool = True,
) -> Decoded:
    return decode(
        data,
        start=start,
        end=end,
        aborted=tuple(aborted),
        headers=headers,
        topic="orders",
        partition=3,
    )


def rows(batch: pa.RecordBatch | None) -> list[dict[str, Any]]:
    if batch is None:
        return []
    batch.validate(full=True)
    assert batch.num_rows > 0
    values: list[dict[str, Any]] = batch.set_column(
        5, "timestamp", batch["timestamp"].cast(pa.int64())
    ).to_pylist()
    return values


def records(batch: pa.RecordBatch | None) -> list[Record]:
    return [
        Record(
            row["offset"], row["timestamp"] // 1000, row["key"], row["value"], pairs(row["headers"])
        )
        for row in rows(batch)
    ]


def pairs(headers: list[dict[str, Any]] | None) -> Headers:
    assert headers != []
    return tuple((header["key"], header["value"]) for header in headers or ())


def error_of(data: bytes) -> KafkaError:
    with pytest.raises(KafkaError) as error:
        decoded(data)
    return error.value


def with_bytes(batch: bytes, **bytes_at: int) -> bytes:
    """Change bytes at positions (`at_23=7`) and correct the CRC."""
    changed = bytearray(batch)
    for name, byte in bytes_at.items():
        changed[int(name.removeprefix("at_"))] = byte
    write_crc(changed, 0, crc_of(changed, 0, len(changed)))
    return bytes(changed)


def numbered(count: int, base_offset: int = 0, **how: Any) -> bytes:
    return build_batch(
        [(None, b"value %d" % (base_offset + at), (), NOW + at) for at in range(count)],
        base_offset=base_offset,
        **how,
    )


def offsets(batch: pa.RecordBatch | None) -> list[int]:
    return [row["offset"] for row in rows(batch)]


def test_columns_equal_those_of_sparks_kafka_connector() -> None:
    data = build_batch(
        [(b"k", b"v", (("trace", b"1"), ("empty", None)), NOW), (None, None, (), NOW + 5)],
        base_offset=40,
    )
    batch, next_offset = decoded(data)
    assert next_offset == 42
    assert batch is not None
    assert batch.schema == SCHEMA_WITH_HEADERS
    common = {"topic": "orders", "partition": 3, "timestampType": 0}
    headers = [{"key": "trace", "value": b"1"}, {"key": "empty", "value": None}]
    assert rows(batch) == [
        {
            **common,
            "key": b"k",
            "value": b"v",
            "offset": 40,
            "timestamp": NOW * 1000,
            "headers": headers,
        },
        {
            **common,
            "key": None,
            "value": None,
            "offset": 41,
            "timestamp": (NOW + 5) * 1000,
            "headers": None,
        },
    ]


def test_headers_are_optional() -> None:
    batch = decoded(build_batch([(b"k", b"v", (("trace", b"1"),), NOW)]), headers=False).batch
    assert batch is not None
    assert batch.schema == SCHEMA
    assert batch["value"].to_pylist() == [b"v"]


def test_invalid_utf8_in_header_keys_is_replaced() -> None:
    data = build_batch([(None, None, (("good", None), ("badd", b"x")), NOW)])
    at = data.index(b"badd")
    assert pairs(rows(decoded(with_bytes(data, **{f"at_{at}": 0xFF})).batch)[0]["headers"]) == (
        ("good", None),
        ("\ufffdadd", b"x"),
    )


@pytest.mark.parametrize("wrote", WROTE, ids=[str(partition.name) for partition in WROTE])
@pytest.mark.parametrize("committed", [True, False])
def test_batches_of_apache_kafka_are_read_as_by_its_consumer(
    wrote: Partition, committed: bool
) -> None:
    batch, next_offset = decoded(
        wrote.batches(), wrote.log_start_offset, aborted=aborted_in(wrote) if committed else ()
    )
    expected = [
        read
        for read in wrote.read()
        if read.read_committed or not committed or read.record.offset >= wrote.last_stable_offset
    ]
    assert records(batch) == [read.record for read in expected]
    assert [row["timestampType"] for row in rows(batch)] == [
        int(read.log_append_time) for read in expected
    ]
    assert next_offset == max(wrote.log_end_offset, wrote.log_start_offset)


def aborted_in(wrote: Partition) -> list[tuple[int, int]]:
    data = b"".join(path.read_bytes() for path in sorted(wrote.directory.glob("*.txnindex")))
    return [
        (producer_id, first)
        for _version, producer_id, first, _last, _stable in TXN_ENTRY.iter_unpack(data)
    ]


def test_fixture_has_aborted_transactions() -> None:
    wrote = partition("transactions")
    assert aborted_in(wrote)
    assert len(rows(decoded(wrote.batches(), aborted=aborted_in(wrote)).batch)) < len(
        rows(decoded(wrote.batches()).batch)
    )


@pytest.mark.parametrize("codec", Codec)
def test_codecs(codec: Codec) -> None:
    data = numbered(300, codec=codec) + numbered(3, 300)
    assert [row["value"] for row in rows(decoded(data).batch)] == [
        b"value %d" % at for at in range(303)
    ]


def test_log_append_time_applies_to_all_records() -> None:
    batch = decoded(numbered(3, append_time_ms=NOW + 77)).batch
    assert {(row["timestamp"], row["timestampType"]) for row in rows(batch)} == {
        ((NOW + 77) * 1000, 1)
    }


def test_missing_timestamp_is_minus_one_ms_as_in_sparks_connector() -> None:
    assert rows(decoded(build_batch([NewRecord(None, b"v")])).batch)[0]["timestamp"] == -1000


@given(st.integers(-3, 25), st.integers(0, 25))
def test_ranges(first: int, length: int) -> None:
    """Batches at 0, 5 and 15; compaction removed the offsets between."""
    data = numbered(5) + numbered(5, 5) + numbered(5, 15)
    start = max(first, 0)
    batch, next_offset = decoded(data, start, start + length)
    existing = [*range(10), *range(15, 20)]
    assert offsets(batch) == [offset for offset in existing if start <= offset < start + length]
    assert next_offset == max(start, min(start + length, 20))


def test_incomplete_last_batch_is_left_for_the_next_fetch() -> None:
    data = numbered(5) + numbered(5, 5)
    whole = len(numbered(5))
    for cut in range(len(data)):
        batch, next_offset = decoded(data[:cut])
        assert (offsets(batch), next_offset) == ((list(range(5)), 5) if cut >= whole else ([], 0))


def test_markers_and_aborted_records_advance_the_offset() -> None:
    aborted = numbered(5, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = end_transaction_marker(
        commit=False,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=NOW,
        base_offset=5,
    )
    assert decoded(aborted + marker, aborted=[(7, 0)]) == Decoded(None, 6)
    assert decoded(aborted + marker, end=6, aborted=[(7, 0)]) == Decoded(None, 6)
    # Records of the producer after its marker are another transaction.
    committed = numbered(2, 6, producer_id=7, producer_epoch=0, base_sequence=5, transactional=True)
    assert offsets(decoded(aborted + marker + committed, aborted=[(7, 0)]).batch) == [6, 7]


def test_empty_batch_of_compaction_advances_the_offset() -> None:
    empty = with_bytes(numbered(3)[:61], at_8=0, at_9=0, at_10=0, at_11=49, at_60=0)
    assert decoded(empty) == Decoded(None, 3)


@pytest.mark.parametrize(("limit", "value"), [("MAX_COLUMNS_ROWS", 7), ("MAX_COLUMNS_BYTES", 100)])
def test_limits_split_the_result(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(columns, limit, value)
    data = numbered(20, codec=Codec.ZSTD) + numbered(5, 20) + numbered(5, 25)
    position, decoded_offsets, pieces = 0, list[int](), 0
    while position < 30:
        batch, position = decoded(data, position)
        decoded_offsets += offsets(batch)
        pieces += 1
        assert limit == "MAX_COLUMNS_BYTES" or len(offsets(batch)) <= value
    assert decoded_offsets == list(range(30))
    assert pieces > 1


def test_crc_error_names_topic_partition_and_offset() -> None:
    good, bad = numbered(5), bytearray(numbered(5, 5))
    bad[-3] ^= 1
    error = error_of(good + bytes(bad))
    assert error.code is ErrorCode.CORRUPT_MESSAGE
    assert "orders-3@5" in error.message
    with pytest.raises(KafkaError, match="orders-3@7: "):
        decoded(bytes(bad), 7)


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"at_60": 6}, ErrorCode.INVALID_RECORD, "orders-3@0"),  # Too many records.
        ({"at_60": 4}, ErrorCode.INVALID_RECORD, "orders-3@0"),  # Too few records.
        ({"at_57": 0x7F}, ErrorCode.INVALID_RECORD, "orders-3@0"),  # Two billion records.
        ({"at_57": 0xFF}, ErrorCode.INVALID_RECORD, "orders-3@0"),  # A negative count.
        ({"at_26": 3}, ErrorCode.INVALID_RECORD, "orders-3@0"),  # Offsets beyond the last one.
        ({"at_23": 0xFF}, ErrorCode.CORRUPT_MESSAGE, "orders-3@0"),  # A negative last offset delta.
        ({"at_27": 0x7F}, ErrorCode.INVALID_RECORD, "timestamp"),
        (
            {"at_61": 0x7E},
            ErrorCode.INVALID_RECORD,
            "orders-3@0",
        ),  # A record longer than the batch.
        ({"at_22": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "codec 5"),
        ({"at_22": 1}, ErrorCode.CORRUPT_MESSAGE, "gzip"),
        ({"at_16": 1}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "v1"),
        ({"at_16": 3}, ErrorCode.CORRUPT_MESSAGE, "magic 3"),
        ({"at_0": 0x80}, ErrorCode.CORRUPT_MESSAGE, "offsets -"),
    ],
)
def test_corrupt_batches_are_refused(
    changes: dict[str, int], code: ErrorCode, message: str
) -> None:
    error = error_of(with_bytes(numbered(5), **changes))
    assert error.code is code
    assert message in error.message
    assert "orders-3@" in error.message


def test_batches_out_of_order_are_refused() -> None:
    error = error_of(numbered(5, 10) + numbered(5, 5))
    assert error.code is ErrorCode.CORRUPT_MESSAGE
    assert "orders-3@15" in error.message


def test_timestamp_overflow_is_an_error_only_inside_the_range() -> None:
    data = (
        numbered(2) + build_batch([(None, b"far", (), 2**63 - 1)], base_offset=2) + numbered(2, 3)
    )
    assert "timestamp" in error_of(data).message
    assert offsets(decoded(data, 0, 2).batch) == [0, 1]
    assert offsets(decoded(data, 3).batch) == [3, 4]
