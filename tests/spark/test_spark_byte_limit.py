"""The estimate of maxBytesPerTrigger: bytes per offset from batch headers, and the end offsets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.ids import NO_TIMESTAMP, TopicPartition
from penstock.limits import BATCH_HEADER_BYTES
from penstock.records.batch import HEADER
from penstock.records.build import NewRecord, build_batch
from penstock.spark.source.byte_limit import byte_limited, sample_bytes_per_offset

P0, P1, P2 = (TopicPartition("orders", index) for index in range(3))


def batch(base_offset: int, records: int, size: int) -> bytes:
    built = bytes(
        build_batch([NewRecord(None, bytes(size), (), NO_TIMESTAMP) for _ in range(records)])
    )
    return base_offset.to_bytes(8, "big") + built[8:]


def test_bytes_per_offset_of_whole_and_cut_batches() -> None:
    first, second = batch(0, 10, 100), batch(10, 10, 300)
    whole = (len(first) + len(second)) / 20
    assert sample_bytes_per_offset(first + second) == whole
    assert sample_bytes_per_offset(first + second[:BATCH_HEADER_BYTES]) == whole
    assert sample_bytes_per_offset(first + second[: BATCH_HEADER_BYTES - 1]) == len(first) / 10
    assert sample_bytes_per_offset(first[:BATCH_HEADER_BYTES]) == len(first) / 10


def test_offsets_that_compaction_removed_count() -> None:
    first, second = batch(0, 10, 100), batch(90, 10, 100)
    assert sample_bytes_per_offset(first + second) == (len(first) + len(second)) / 100


@pytest.mark.parametrize(
    "header",
    [
        (0, -12, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1),  # a length of 0
        (0, 49, 0, 2, 0, 0, -1, 0, 0, -1, -1, -1, 1),  # no offsets
        (-5, 49, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1),  # a negative offset
    ],
)
def test_invalid_headers_are_no_sample(header: tuple[int, ...]) -> None:
    invalid = HEADER.pack(*header)
    assert sample_bytes_per_offset(invalid) is None
    valid = batch(0, 10, 100)
    assert sample_bytes_per_offset(valid + invalid) == len(valid) / 10


@pytest.mark.parametrize("records", [None, b"", b"x" * 60])
def test_response_without_a_header_is_no_sample(records: bytes | None) -> None:
    assert sample_bytes_per_offset(records) is None


def test_limit_is_shared_in_proportion_to_the_bytes_of_the_backlog() -> None:
    start, end = {P0: 10, P1: 0, P2: 5}, {P0: 110, P1: 1000, P2: 5}
    sizes = {P0: 1000.0, P1: 100.0}
    assert byte_limited(start, end, sizes, 20_000) == {P0: 20, P1: 100, P2: 5}
    assert byte_limited(start, end, sizes, 200_000) == end
    # A partition without a sample has the mean size.
    assert byte_limited(start, end, {P0: 1000.0}, 110_000) == {P0: 20, P1: 100, P2: 5}
    # Without any sample each partition advances by one offset.
    assert byte_limited(start, end, {}, 10**9) == {P0: 11, P1: 1, P2: 5}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.integers(0, 10**6), st.floats(0.1, 10**6)),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 10**12),
)
def test_limit_holds_and_every_partition_advances(
    edges: list[tuple[int, int, float]], maximum: int
) -> None:
    partitions = [TopicPartition("t", index) for index in range(len(edges))]
    start = {each: edge[0] for each, edge in zip(partitions, edges, strict=True)}
    end = {each: edge[0] + edge[1] for each, edge in zip(partitions, edges, strict=True)}
    sizes = {each: edge[2] for each, edge in zip(partitions, edges, strict=True)}
    limited = byte_limited(start, end, sizes, maximum)
    assert all(start[each] <= limited[each] <= end[each] for each in partitions)
    assert all(limited[each] > start[each] for each in partitions if end[each] > start[each])
    taken = sum((limited[each] - start[each]) * sizes[each] for each in partitions)
    assert taken <= maximum * 1.000001 + sum(sizes.values())
