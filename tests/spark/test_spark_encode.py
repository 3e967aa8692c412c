"""Encoding with both kernels: the result equals the bytes that penstock.records builds."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.producer.partitioner import partition_of_key
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_BATCH_BYTES, MAX_RECORD_HEADERS
from penstock.records.batch import read_header, validate
from penstock.records.build import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.record import read_records
from penstock.spark.kernel.columns import encode, partitions_of, rows_by_partition
from penstock.spark.kernel.interface import HEADERS

pytestmark = pytest.mark.usefixtures("kernel")

NOW = 1_700_000_000_000

optional_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=4).map(tuple)
new_records = st.builds(
    NewRecord, key=optional_bytes, value=optional_bytes, headers=headers, timestamp=st.just(NOW)
)


def table(records: list[NewRecord]) -> pa.RecordBatch:
    structs = [
        [{"key": key, "value": value} for key, value in record.headers] or None
        for record in records
    ]
    return pa.record_batch(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "headers": pa.array(structs, HEADERS),
        }
    )


def encoded(batch: pa.RecordBatch, **options: Any) -> list[bytes]:
    results = list(encode(batch, **{"max_bytes": 1_000_000, "timestamp_ms": NOW, **options}))
    for result in results:
        (header,) = validate(result.batch, max_batch_bytes=MAX_BATCH_BYTES)
        assert header.record_count == result.records
    return [result.batch for result in results]


@given(st.lists(new_records, min_size=1, max_size=20), st.data())
def test_bytes_equal_those_of_build_batch(records: list[NewRecord], data: st.DataObject) -> None:
    """For whole batches, slices, and selected rows in any order."""
    assert encoded(table(records)) == [build_batch(records)]
    first = data.draw(st.integers(0, len(records) - 1))
    assert encoded(table(records).slice(first)) == [build_batch(records[first:])]
    selected = data.draw(st.lists(st.integers(first, len(records) - 1), min_size=1, max_size=20))
    rows = pa.array([0, *(at - first for at in selected)]).slice(1)
    assert encoded(table(records).slice(first), rows=rows) == [
        build_batch([records[at] for at in selected])
    ]


@pytest.mark.parametrize("codec", Codec)
def test_codecs_and_producer_fields(codec: Codec) -> None:
    records = [NewRecord(b"key", b"value %d" % at, (), NOW) for at in range(100)]
    options: dict[str, Any] = {
        "codec": codec,
        "producer_id": 9,
        "producer_epoch": 2,
        "base_sequence": 5,
        "transactional": True,
    }
    assert encoded(table(records), **options) == [build_batch(records, **options)]


def test_max_bytes_splits_batches_and_sequences_continue() -> None:
    records = [NewRecord(None, b"v" * 100, (("header", b"h" * 50),), NOW)] * 20
    batches = encoded(
        table(records), max_bytes=1000, producer_id=9, producer_epoch=0, base_sequence=2**31 - 6
    )
    assert [read_header(batch).record_count for batch in batches] == [4] * 5
    assert [read_header(batch).base_sequence for batch in batches] == [
        2**31 - 6,
        2**31 - 2,
        2,
        6,
        10,
    ]
    assert max(map(len, batches)) <= 1000


def test_record_larger_than_max_bytes_is_a_batch() -> None:
    records = [NewRecord(None, b"v" * size, (), NOW) for size in (5, 5000, 5)]
    assert encoded(table(records), max_bytes=200) == [build_batch([record]) for record in records]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary()])
def test_string_and_large_types(type_: pa.DataType) -> None:
    batch = pa.record_batch({"value": pa.array(["ä", None], type_), "key": pa.nulls(2)})
    assert encoded(batch) == [
        build_batch([NewRecord(None, "ä".encode(), (), NOW), NewRecord(None, None, (), NOW)])
    ]


def test_only_value_is_required_and_other_columns_are_ignored() -> None:
    batch = pa.record_batch({"value": pa.array([b"v"]), "topic": pa.array(["t"])})
    assert encoded(batch) == [build_batch([NewRecord(None, b"v", (), NOW)])]


def test_no_rows_give_no_batch() -> None:
    assert encoded(table([])) == []
    assert encoded(table([NewRecord(None, b"v")]), rows=pa.array([], pa.uint64())) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": pa.array([b"k"])}, "there is no column value"),
        ({"value": pa.array([1.5])}, "the column value of type double"),
        ({"value": pa.array([b"v"]), "headers": pa.array(["h"])}, "the column headers"),
        (
            {
                "value": pa.array([b"v"]),
                "headers": pa.array([[{"key": None, "value": b""}]], HEADERS),
            },
            "a header has no key",
        ),
        (
            {"value": pa.array([b"v"]), "headers": pa.array([[None]], HEADERS)},
            "a header has no key",
        ),
        (
            {
                "value": pa.array([b"v"]),
                "headers": pa.array([[{"key": ""}] * (MAX_RECORD_HEADERS + 1)], HEADERS),
            },
            "100000 headers",
        ),
    ],
)
def test_invalid_columns_are_refused(columns: dict[str, pa.Array], message: str) -> None:
    with pytest.raises(KafkaError, match=message) as error:
        encoded(pa.record_batch(columns))
    assert error.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("row", [-1, 1, 2**62])
def test_invalid_row_indices_are_refused(row: int) -> None:
    with pytest.raises(KafkaError, match="row"):
        encoded(table([NewRecord(b"k", b"v")]), rows=pa.array([row]))


@given(st.lists(optional_bytes), st.integers(1, 1000), st.integers(0, 3))
def test_partitions_equal_those_of_kafkas_producer(
    keys: list[bytes | None], count: int, skipped: int
) -> None:
    partitions = partitions_of(pa.array([b""] * skipped + keys, pa.binary()).slice(skipped), count)
    assert partitions.type == pa.int32()
    assert partitions.to_pylist() == [
        None if key is None else partition_of_key(key, count) for key in keys
    ]


@given(st.lists(st.integers(0, 5)))
def test_rows_by_partition_keep_their_order(partitions: list[int]) -> None:
    by_partition = {
        partition: rows.to_pylist()
        for partition, rows in rows_by_partition(pa.array(partitions, pa.int32()))
    }
    assert by_partition == {
        partition: [row for row, value in enumerate(partitions) if value == partition]
        for partition in partitions
    }


def test_rows_are_divided_among_partitions() -> None:
    records = [NewRecord(b"key %d" % at, b"value", (), NOW) for at in range(1000)]
    batch = table(records)
    keys: set[bytes | None] = set()
    for partition, rows in rows_by_partition(partitions_of(batch["key"], 7)):
        partition_keys = [
            record.key
            for result in encoded(batch, rows=rows, max_bytes=500)
            for record in read_records(result)
        ]
        assert {partition_of_key(key or b"", 7) for key in partition_keys} == {partition}
        keys |= set(partition_keys)
    assert keys == {record.key for record in records}
