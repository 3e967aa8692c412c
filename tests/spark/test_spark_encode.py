"""Encoding with both kernels: the bytes that penstock.records builds, from Arrow columns of every
shape."""

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
        [{"key": key, "value": value} for key, value in one.headers] or None for one in records
    ]
    return pa.record_batch(
        {
            "key": pa.array([one.key for one in records], pa.binary()),
            "value": pa.array([one.value for one in records], pa.binary()),
            "headers": pa.array(structs, HEADERS),
        }
    )


def encoded(batch: pa.RecordBatch, **how: Any) -> list[bytes]:
    found = list(encode(batch, **{"max_bytes": 1_000_000, "timestamp_ms": NOW, **how}))
    for one in found:
        (header,) = validate(one.batch, max_batch_bytes=MAX_BATCH_BYTES)
        assert header.record_count == one.records
    return [one.batch for one in found]


@given(st.lists(new_records, min_size=1, max_size=20), st.data())
def test_the_same_bytes_as_records_builds(records: list[NewRecord], data: st.DataObject) -> None:
    """Also of a slice of a larger batch, and of some rows in any order."""
    assert encoded(table(records)) == [build_batch(records)]
    first = data.draw(st.integers(0, len(records) - 1))
    assert encoded(table(records).slice(first)) == [build_batch(records[first:])]
    some = data.draw(st.lists(st.integers(first, len(records) - 1), min_size=1, max_size=20))
    rows = pa.array([0, *(at - first for at in some)]).slice(1)
    assert encoded(table(records).slice(first), rows=rows) == [
        build_batch([records[at] for at in some])
    ]


@pytest.mark.parametrize("codec", Codec)
def test_codecs_and_what_an_idempotent_producer_sends(codec: Codec) -> None:
    records = [NewRecord(b"key", b"value %d" % at, (), NOW) for at in range(100)]
    how: dict[str, Any] = {
        "codec": codec,
        "producer_id": 9,
        "producer_epoch": 2,
        "base_sequence": 5,
        "transactional": True,
    }
    assert encoded(table(records), **how) == [build_batch(records, **how)]


def test_batches_stay_below_their_bound_and_sequences_go_on() -> None:
    records = [NewRecord(None, b"v" * 100, (("header", b"h" * 50),), NOW)] * 20
    batches = encoded(
        table(records), max_bytes=1000, producer_id=9, producer_epoch=0, base_sequence=2**31 - 6
    )
    assert [read_header(one).record_count for one in batches] == [4] * 5
    assert [read_header(one).base_sequence for one in batches] == [2**31 - 6, 2**31 - 2, 2, 6, 10]
    assert max(map(len, batches)) <= 1000


def test_a_record_larger_than_the_bound_is_a_batch_of_its_own() -> None:
    records = [NewRecord(None, b"v" * size, (), NOW) for size in (5, 5000, 5)]
    assert encoded(table(records), max_bytes=200) == [build_batch([one]) for one in records]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary()])
def test_text_and_large_types(type_: pa.DataType) -> None:
    batch = pa.record_batch({"value": pa.array(["ä", None], type_), "key": pa.nulls(2)})
    assert encoded(batch) == [
        build_batch([NewRecord(None, "ä".encode(), (), NOW), NewRecord(None, None, (), NOW)])
    ]


def test_only_a_value_is_needed_and_other_columns_are_ignored() -> None:
    batch = pa.record_batch({"value": pa.array([b"v"]), "topic": pa.array(["t"])})
    assert encoded(batch) == [build_batch([NewRecord(None, b"v", (), NOW)])]


def test_nothing_makes_no_batch() -> None:
    assert encoded(table([])) == []
    assert encoded(table([NewRecord(None, b"v")]), rows=pa.array([], pa.uint64())) == []


@pytest.mark.parametrize(
    ("columns", "says"),
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
def test_what_cannot_be_written_is_refused(columns: dict[str, pa.Array], says: str) -> None:
    with pytest.raises(KafkaError, match=says) as error:
        encoded(pa.record_batch(columns))
    assert error.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("row", [-1, 1, 2**62])
def test_rows_that_are_not_there(row: int) -> None:
    with pytest.raises(KafkaError, match="row"):
        encoded(table([NewRecord(b"k", b"v")]), rows=pa.array([row]))


@given(st.lists(optional_bytes), st.integers(1, 1000), st.integers(0, 3))
def test_partitions_are_those_of_kafkas_producer(
    keys: list[bytes | None], count: int, skipped: int
) -> None:
    found = partitions_of(pa.array([b""] * skipped + keys, pa.binary()).slice(skipped), count)
    assert found.type == pa.int32()
    assert found.to_pylist() == [
        None if key is None else partition_of_key(key, count) for key in keys
    ]


@given(st.lists(st.integers(0, 5)))
def test_rows_by_partition_keep_their_order(partitions: list[int]) -> None:
    found = {
        partition: rows.to_pylist()
        for partition, rows in rows_by_partition(pa.array(partitions, pa.int32()))
    }
    assert found == {
        one: [row for row, each in enumerate(partitions) if each == one] for one in partitions
    }


def test_a_batch_goes_to_all_its_partitions() -> None:
    records = [NewRecord(b"key %d" % at, b"value", (), NOW) for at in range(1000)]
    batch = table(records)
    keys: set[bytes | None] = set()
    for partition, rows in rows_by_partition(partitions_of(batch["key"], 7)):
        here = [
            record.key
            for one in encoded(batch, rows=rows, max_bytes=500)
            for record in read_records(one)
        ]
        assert {partition_of_key(key or b"", 7) for key in here} == {partition}
        keys |= set(here)
    assert keys == {record.key for record in records}
