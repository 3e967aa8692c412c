"""Plans: where batches begin and end, what is lost, and how ranges are cut."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.offsets import EARLIEST, LATEST
from penstock.ids import NO_UUID, TopicPartition
from penstock.spark.options import OptionError
from penstock.spark.options.offset_limits import (
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
)
from penstock.spark.source.data_loss import DataLoss
from penstock.spark.source.offset_reader import NO_OFFSET, limit_timestamps, resolve_limit
from penstock.spark.source.offsets import FIRST_BATCH_START_KEY, Snapshot, SourceOffset
from penstock.spark.source.ranges import (
    OffsetRange,
    batch_ranges,
    rate_limited,
    resume_offsets,
    split_ranges,
)

OLD, NEW = UUID(int=1001), UUID(int=1002)
P0, P1, P2 = (TopicPartition("orders", index) for index in range(3))


def now(edges: Mapping[TopicPartition, tuple[int, int]], topic_id: UUID = OLD) -> Snapshot:
    ids = {one.topic: topic_id for one in edges}
    return Snapshot(
        ids,
        {one: edge[0] for one, edge in edges.items()},
        {one: edge[1] for one, edge in edges.items()},
    )


def offsets(
    at: Mapping[TopicPartition, int], topic_id: UUID = OLD, *, initial: bool = False
) -> SourceOffset:
    return SourceOffset(at, {one.topic: topic_id for one in at}, initial)


# The checkpoint.


def test_offsets_go_through_json() -> None:
    one = SourceOffset({P1: 9, P0: 12}, {"orders": OLD}, first_batch_start={P0: 3})
    found = json.loads(json.dumps(one.to_json()))
    assert found == {
        "orders": {"0": 12, "1": 9, "id": "AAAAAAAAAAAAAAAAAAAD6Q"},
        FIRST_BATCH_START_KEY: {"orders": {"0": 3}},
    }
    assert list(found["orders"]) == ["0", "1", "id"]
    assert SourceOffset.from_json(found) == one
    assert SourceOffset.from_json(offsets({P0: 1}, initial=True).to_json()).initial


def test_a_checkpoint_of_sparks_own_source_is_read() -> None:
    assert SourceOffset.from_json({"orders": {"0": 12}}) == SourceOffset({P0: 12}, {})


@pytest.mark.parametrize(
    "found",
    [
        {"orders": 1},
        {"orders": {"x": 1}},
        {"orders": {"0": -1}},
        {"orders": {"0": "1"}},
        {"orders": {"id": "?"}},
    ],
)
def test_a_checkpoint_of_something_else_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="another source"):
        SourceOffset.from_json(found)


# Where a batch begins.


def test_a_batch_begins_where_the_last_one_ended_and_new_partitions_at_their_start() -> None:
    begin, losses = resume_offsets(offsets({P0: 5}), now({P0: (0, 9), P1: (0, 3)}))
    assert (begin, losses) == ({P0: 5, P1: 0}, [])


def test_what_retention_took_is_named() -> None:
    begin, losses = resume_offsets(offsets({P0: 5}), now({P0: (8, 20)}))
    assert begin == {P0: 8}
    assert str(losses[0]).startswith(
        "orders-0: offsets 5 to 7 cannot be read: the log starts at offset 8"
    )


def test_a_new_partition_that_lost_its_start_counts_as_loss() -> None:
    _begin, losses = resume_offsets(offsets({P0: 5}), now({P0: (0, 9), P1: (2, 3)}))
    assert [(one.partition, one.start, one.end) for one in losses] == [(P1, 0, 2)]


def test_a_log_that_lost_its_end() -> None:
    begin, losses = resume_offsets(offsets({P0: 50}), now({P0: (0, 20)}))
    assert begin == {P0: 20}
    assert [(one.start, one.end) for one in losses] == [(20, 50)]


def test_a_topic_that_was_created_again_is_read_from_its_start_and_said() -> None:
    begin, losses = resume_offsets(offsets({P0: 5}), now({P0: (0, 9)}, NEW))
    assert begin == {P0: 0}
    assert "deleted and created again" in str(losses[0])


def test_a_deleted_topic() -> None:
    begin, losses = resume_offsets(offsets({P0: 5}), now({}))
    assert begin == {}
    assert "does not exist any more" in str(losses[0])


@pytest.mark.parametrize(("before", "after"), [(NO_UUID, OLD), (OLD, NO_UUID)])
def test_without_ids_nothing_is_compared(before: UUID, after: UUID) -> None:
    assert resume_offsets(offsets({P0: 5}, before), now({P0: (0, 9)}, after)) == ({P0: 5}, [])


# Rate limits.


def test_a_limit_is_shared_in_proportion() -> None:
    assert rate_limited({P0: 0, P1: 0}, {P0: 300, P1: 100}, 40) == {P0: 30, P1: 10}
    assert rate_limited({P0: 0, P1: 0}, {P0: 300, P1: 100}, 400) == {P0: 300, P1: 100}


# No deadline: it is one of wall-clock time, which a busy machine misses.
@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=20),
    st.integers(1, 10**6),
)
def test_a_limit_is_kept_and_every_partition_goes_on(
    edges: list[tuple[int, int]], maximum: int
) -> None:
    begin = {TopicPartition("t", index): start for index, (start, _size) in enumerate(edges)}
    latest = {TopicPartition("t", index): start + size for index, (start, size) in enumerate(edges)}
    ends = rate_limited(begin, latest, maximum)
    taken = {one: ends[one] - begin[one] for one in begin}
    assert all(begin[one] <= end <= latest[one] for one, end in ends.items())
    assert all(taken[one] > 0 for one in begin if latest[one] > begin[one])
    assert sum(taken.values()) <= max(maximum, 0) + len(edges)


# What a batch reads.


def test_ranges_of_a_batch() -> None:
    found, losses = batch_ranges(
        offsets({P0: 5, P1: 7}),
        offsets({P0: 9, P1: 7, P2: 2}),
        now({P0: (0, 9), P1: (0, 7), P2: (0, 2)}),
    )
    assert found == [OffsetRange("orders", OLD, 0, 5, 9), OffsetRange("orders", OLD, 2, 0, 2)]
    assert losses == []


def test_a_first_batch_that_is_repeated_begins_where_it_began() -> None:
    """Spark asks again where to begin, and with startingOffsets=latest that is behind the batch."""
    end = SourceOffset({P0: 9}, {"orders": OLD}, first_batch_start={P0: 5})
    found, losses = batch_ranges(offsets({P0: 30}, initial=True), end, now({P0: (0, 30)}))
    assert (found, losses) == ([OffsetRange("orders", OLD, 0, 5, 9)], [])


def test_a_batch_whose_topic_was_created_again_before_it_is_repeated() -> None:
    found, losses = batch_ranges(offsets({P0: 5}), offsets({P0: 9}), now({P0: (0, 100)}, NEW))
    assert found == []
    assert [(one.start, one.end) for one in losses] == [(5, 9)]


def test_a_batch_across_a_new_creation_reads_the_new_topic() -> None:
    found, losses = batch_ranges(offsets({P0: 5}), offsets({P0: 9}, NEW), now({P0: (0, 9)}, NEW))
    assert found == [OffsetRange("orders", NEW, 0, 0, 9)]
    assert len(losses) == 1


def test_a_batch_of_which_retention_took_a_part_or_all() -> None:
    found, losses = batch_ranges(
        offsets({P0: 5, P1: 5}), offsets({P0: 9, P1: 9}), now({P0: (7, 30), P1: (20, 30)})
    )
    assert found == [OffsetRange("orders", OLD, 0, 7, 9)]
    assert [(one.partition, one.start, one.end) for one in losses] == [(P0, 5, 7), (P1, 5, 9)]


# Splits.


def test_one_task_a_partition_without_a_wish() -> None:
    whole = [
        OffsetRange("t", OLD, 0, 0, 10),
        OffsetRange("t", OLD, 1, 4, 4),
        OffsetRange("t", OLD, 2, 9, 3),
    ]
    assert split_ranges(whole) == whole[:1]


def test_large_ranges_are_cut_and_small_ones_are_not() -> None:
    whole = [OffsetRange("t", OLD, 0, 0, 900), OffsetRange("t", OLD, 1, 0, 10)]
    parts = split_ranges(whole, min_partitions=4)
    assert [(one.partition, one.start, one.end) for one in parts] == [
        (0, 0, 300),
        (0, 300, 600),
        (0, 600, 900),
        (1, 0, 10),
    ]


def test_at_most_so_many_records_a_task() -> None:
    parts = split_ranges([OffsetRange("t", OLD, 0, 5, 30)], max_records=10)
    assert [(one.start, one.end) for one in parts] == [(5, 13), (13, 21), (21, 30)]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**6)), max_size=12),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1000, 10**6),
)
def test_splits_cover_the_ranges_exactly(
    edges: list[tuple[int, int]], minimum: int | None, most: int | None
) -> None:
    whole = [
        OffsetRange("t", OLD, index, start, start + size)
        for index, (start, size) in enumerate(edges)
    ]
    parts = split_ranges(whole, minimum, most)
    assert all(one.size > 0 for one in parts)
    for one in whole:
        pieces = [piece for piece in parts if piece.partition == one.partition]
        assert sum(piece.size for piece in pieces) == one.size
        edges_of = [(piece.start, piece.end) for piece in pieces]
        assert all(before[1] == after[0] for before, after in pairwise(edges_of))
    if most is not None:
        assert all(one.size <= most for one in parts)
    if minimum is not None and sum(one.size for one in whole) >= 10 * minimum:
        assert len(parts) >= minimum // 2


# From options to offsets.


def resolved(
    limit: OffsetLimit, found: Mapping[TopicPartition, int], *, starting: bool
) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    return resolve_limit(
        limit, "startingOffsets", now({P0: (2, 9), P1: (0, 5)}), found, starting=starting
    )


def test_edges_and_offsets() -> None:
    assert resolved(EARLIEST, {}, starting=True) == ({P0: 2, P1: 0}, [])
    assert resolved(LATEST, {}, starting=True) == ({P0: 9, P1: 5}, [])
    assert resolved(SpecificOffsets({P0: LATEST, P1: 3}), {}, starting=True) == ({P0: 9, P1: 3}, [])


def test_offsets_out_of_range_are_losses() -> None:
    at, losses = resolved(SpecificOffsets({P0: 1, P1: 50}), {}, starting=True)
    assert at == {P0: 2, P1: 5}
    assert [(one.partition, one.start, one.end) for one in losses] == [(P0, 1, 2), (P1, 5, 50)]
    assert "startingOffsets is 50, but the log has offsets 0 to 5" in str(losses[1])


def test_all_partitions_must_be_named_and_no_others() -> None:
    with pytest.raises(OptionError, match="does not include orders-1"):
        resolved(SpecificOffsets({P0: 1}), {}, starting=True)
    with pytest.raises(OptionError, match="includes orders-2"):
        resolved(SpecificOffsets({P0: 1, P1: 1, P2: 1}), {}, starting=True)
    with pytest.raises(OptionError, match="does not include orders-1"):
        limit_timestamps(
            SpecificTimestamps({P0: 1000}, False, "startingOffsetsByTimestamp"), [P0, P1]
        )


def test_times() -> None:
    assert limit_timestamps(EARLIEST, [P0]) == {}
    assert limit_timestamps(SpecificTimestamps(1000, False, "startingTimestamp"), [P0, P1]) == {
        P0: 1000,
        P1: 1000,
    }
    strict, lenient = (
        SpecificTimestamps(1000, False, "startingTimestamp"),
        SpecificTimestamps(1000, True, "startingTimestamp"),
    )
    found = {P0: 4, P1: NO_OFFSET}
    assert resolved(lenient, found, starting=True) == ({P0: 4, P1: 5}, [])
    assert resolved(strict, found, starting=False) == ({P0: 4, P1: 5}, [])
    with pytest.raises(
        OptionError, match="orders-1 has no record with that timestamp or a later one"
    ):
        resolved(strict, found, starting=True)
