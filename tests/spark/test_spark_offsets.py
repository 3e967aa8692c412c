"""Source offsets and ranges: checkpoint format, resuming, data loss, rate limits and splits."""

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
    RelativeTime,
    SpecificOffsets,
    SpecificTimestamps,
)
from penstock.spark.options.source import Assign
from penstock.spark.source.data_loss import DataLoss
from penstock.spark.source.offset_reader import NO_OFFSET, limit_timestamps, resolve_limit
from penstock.spark.source.offsets import FIRST_BATCH_START_KEY, Snapshot, SourceOffset
from penstock.spark.source.ranges import (
    OffsetRange,
    batch_ranges,
    next_offset,
    rate_limited,
    resume_offsets,
    split_ranges,
)

OLD, NEW = UUID(int=1001), UUID(int=1002)
P0, P1, P2 = (TopicPartition("orders", index) for index in range(3))


def snapshot(logs: Mapping[TopicPartition, tuple[int, int]], topic_id: UUID = OLD) -> Snapshot:
    """`logs` has the earliest and the latest offset of each partition."""
    return Snapshot(
        {partition.topic: topic_id for partition in logs},
        {partition: earliest for partition, (earliest, _latest) in logs.items()},
        {partition: latest for partition, (_earliest, latest) in logs.items()},
    )


def offsets(
    values: Mapping[TopicPartition, int], topic_id: UUID = OLD, *, initial: bool = False
) -> SourceOffset:
    return SourceOffset(values, {partition.topic: topic_id for partition in values}, initial)


# Checkpoint format.


def test_json_round_trip() -> None:
    offset = SourceOffset({P1: 9, P0: 12}, {"orders": OLD}, first_batch_start={P0: 3})
    value = json.loads(json.dumps(offset.to_json()))
    assert value == {
        "orders": {"0": 12, "1": 9, "id": "AAAAAAAAAAAAAAAAAAAD6Q"},
        FIRST_BATCH_START_KEY: {"orders": {"0": 3}},
    }
    assert list(value["orders"]) == ["0", "1", "id"]
    assert SourceOffset.from_json(value) == offset
    assert SourceOffset.from_json(offsets({P0: 1}, initial=True).to_json()).initial


def test_checkpoint_of_sparks_kafka_connector_is_read() -> None:
    assert SourceOffset.from_json({"orders": {"0": 12}}) == SourceOffset({P0: 12}, {})


@pytest.mark.parametrize(
    "value",
    [
        {"orders": 1},
        {"orders": {"x": 1}},
        {"orders": {"0": -1}},
        {"orders": {"0": "1"}},
        {"orders": {"id": "?"}},
    ],
)
def test_checkpoint_of_another_source_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="another source"):
        SourceOffset.from_json(value)


# Resuming.


def test_batch_resumes_at_the_last_end_and_new_partitions_at_zero() -> None:
    resumed, losses = resume_offsets(offsets({P0: 5}), snapshot({P0: (0, 9), P1: (0, 3)}))
    assert (resumed, losses) == ({P0: 5, P1: 0}, [])


def test_offsets_deleted_by_retention_are_data_loss() -> None:
    resumed, losses = resume_offsets(offsets({P0: 5}), snapshot({P0: (8, 20)}))
    assert resumed == {P0: 8}
    assert str(losses[0]).startswith(
        "orders-0: offsets 5 to 7 cannot be read: the log starts at offset 8"
    )


def test_new_partition_without_its_first_offsets_is_data_loss() -> None:
    _resumed, losses = resume_offsets(offsets({P0: 5}), snapshot({P0: (0, 9), P1: (2, 3)}))
    assert [(loss.partition, loss.start, loss.end) for loss in losses] == [(P1, 0, 2)]


def test_truncated_log_is_data_loss() -> None:
    resumed, losses = resume_offsets(offsets({P0: 50}), snapshot({P0: (0, 20)}))
    assert resumed == {P0: 20}
    assert [(loss.start, loss.end) for loss in losses] == [(20, 50)]


def test_recreated_topic_is_data_loss_and_read_from_its_start() -> None:
    resumed, losses = resume_offsets(offsets({P0: 5}), snapshot({P0: (0, 9)}, NEW))
    assert resumed == {P0: 0}
    assert "deleted and created again" in str(losses[0])


def test_deleted_topic_is_data_loss() -> None:
    resumed, losses = resume_offsets(offsets({P0: 5}), snapshot({}))
    assert resumed == {}
    assert "does not exist any more" in str(losses[0])


def test_unsubscribed_partition_is_not_reported_as_deleted() -> None:
    other = TopicPartition("payments", 0)
    start = offsets({P0: 5, P1: 6, other: 7})
    subscribed = Assign(frozenset({P0}))
    _resumed, losses = resume_offsets(start, snapshot({P0: (0, 9)}), subscribed)
    assert [loss.partition for loss in losses] == [P1, other]
    assert all("does not subscribe to the partition any more" in str(loss) for loss in losses)
    assert not any("deleted" in str(loss) for loss in losses)
    _ranges, losses = batch_ranges(start, offsets({P1: 9}), snapshot({}), subscribed)
    assert "does not subscribe" in str(losses[0])
    _ranges, losses = batch_ranges(start, offsets({P0: 9}), snapshot({}), subscribed)
    assert "its topic was deleted" in str(losses[0])


def test_offsets_of_missing_partitions_are_kept() -> None:
    other = TopicPartition("payments", 0)
    start = SourceOffset({P0: 5, P1: 6, other: 7}, {"orders": OLD, "payments": NEW})
    end = next_offset(start, {P0: 9}, snapshot({P0: (0, 9)}))
    assert end == SourceOffset({P0: 9, P1: 6, other: 7}, {"orders": OLD, "payments": NEW})
    assert SourceOffset.from_json(end.to_json()) == end
    ranges, losses = batch_ranges(start, end, snapshot({P0: (0, 9)}))
    assert ranges == [OffsetRange("orders", OLD, 0, 5, 9)]
    assert losses == [], "the loss is reported once, when the batch is planned"


def test_offsets_of_a_recreated_topic_are_not_kept() -> None:
    end = next_offset(offsets({P0: 5, P1: 6}), {P0: 2}, snapshot({P0: (0, 2)}, NEW))
    assert end == SourceOffset({P0: 2}, {"orders": NEW})


@pytest.mark.parametrize(("before", "after"), [(NO_UUID, OLD), (OLD, NO_UUID)])
def test_missing_topic_ids_are_not_compared(before: UUID, after: UUID) -> None:
    assert resume_offsets(offsets({P0: 5}, before), snapshot({P0: (0, 9)}, after)) == ({P0: 5}, [])


# Rate limits.


def test_rate_limit_is_proportional_to_the_backlog() -> None:
    assert rate_limited({P0: 0, P1: 0}, {P0: 300, P1: 100}, 40) == {P0: 30, P1: 10}
    assert rate_limited({P0: 0, P1: 0}, {P0: 300, P1: 100}, 400) == {P0: 300, P1: 100}


# A deadline is wall-clock time, which a busy machine exceeds.
@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=20),
    st.integers(1, 10**6),
)
def test_rate_limit_holds_and_every_partition_advances(
    edges: list[tuple[int, int]], maximum: int
) -> None:
    partitions = [TopicPartition("t", index) for index in range(len(edges))]
    start = {partition: first for partition, (first, _size) in zip(partitions, edges, strict=True)}
    latest = {
        partition: first + size for partition, (first, size) in zip(partitions, edges, strict=True)
    }
    ends = rate_limited(start, latest, maximum)
    taken = {partition: ends[partition] - offset for partition, offset in start.items()}
    assert all(start[partition] <= end <= latest[partition] for partition, end in ends.items())
    assert all(taken[partition] > 0 for partition in start if latest[partition] > start[partition])
    assert sum(taken.values()) <= max(maximum, 0) + len(edges)


# What a batch reads.


def test_ranges_of_a_batch() -> None:
    ranges, losses = batch_ranges(
        offsets({P0: 5, P1: 7}),
        offsets({P0: 9, P1: 7, P2: 2}),
        snapshot({P0: (0, 9), P1: (0, 7), P2: (0, 2)}),
    )
    assert ranges == [OffsetRange("orders", OLD, 0, 5, 9), OffsetRange("orders", OLD, 2, 0, 2)]
    assert losses == []


def test_repeated_first_batch_starts_at_its_original_start() -> None:
    """Spark asks for the initial offset again; with startingOffsets=latest it follows the batch."""
    end = SourceOffset({P0: 9}, {"orders": OLD}, first_batch_start={P0: 5})
    ranges, losses = batch_ranges(offsets({P0: 30}, initial=True), end, snapshot({P0: (0, 30)}))
    assert (ranges, losses) == ([OffsetRange("orders", OLD, 0, 5, 9)], [])


def test_repeated_batch_of_a_recreated_topic_is_data_loss() -> None:
    ranges, losses = batch_ranges(offsets({P0: 5}), offsets({P0: 9}), snapshot({P0: (0, 100)}, NEW))
    assert ranges == []
    assert [(loss.start, loss.end) for loss in losses] == [(5, 9)]


def test_batch_that_ends_in_a_recreated_topic_reads_the_new_topic() -> None:
    ranges, losses = batch_ranges(
        offsets({P0: 5}), offsets({P0: 9}, NEW), snapshot({P0: (0, 9)}, NEW)
    )
    assert ranges == [OffsetRange("orders", NEW, 0, 0, 9)]
    assert len(losses) == 1


def test_batch_partly_or_fully_deleted_by_retention() -> None:
    ranges, losses = batch_ranges(
        offsets({P0: 5, P1: 5}), offsets({P0: 9, P1: 9}), snapshot({P0: (7, 30), P1: (20, 30)})
    )
    assert ranges == [OffsetRange("orders", OLD, 0, 7, 9)]
    assert [(loss.partition, loss.start, loss.end) for loss in losses] == [(P0, 5, 7), (P1, 5, 9)]


def test_repeated_batch_of_a_truncated_log_ends_where_the_log_ends() -> None:
    ranges, losses = batch_ranges(
        offsets({P0: 5, P1: 8}), offsets({P0: 9, P1: 9}), snapshot({P0: (0, 7), P1: (0, 7)})
    )
    assert ranges == [OffsetRange("orders", OLD, 0, 5, 7)]
    assert [(loss.partition, loss.start, loss.end) for loss in losses] == [(P0, 7, 9), (P1, 8, 9)]
    assert "the log ends at offset 7" in str(losses[1])


# Splits.


def test_default_is_one_range_per_partition() -> None:
    whole = [
        OffsetRange("t", OLD, 0, 0, 10),
        OffsetRange("t", OLD, 1, 4, 4),
        OffsetRange("t", OLD, 2, 9, 3),
    ]
    assert split_ranges(whole) == whole[:1]


def test_min_partitions_splits_large_ranges_only() -> None:
    whole = [OffsetRange("t", OLD, 0, 0, 900), OffsetRange("t", OLD, 1, 0, 10)]
    parts = split_ranges(whole, min_partitions=4)
    assert [(part.partition, part.start, part.end) for part in parts] == [
        (0, 0, 300),
        (0, 300, 600),
        (0, 600, 900),
        (1, 0, 10),
    ]


def test_max_records_splits_ranges() -> None:
    parts = split_ranges([OffsetRange("t", OLD, 0, 5, 30)], max_records=10)
    assert [(part.start, part.end) for part in parts] == [(5, 13), (13, 21), (21, 30)]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**6)), max_size=12),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1000, 10**6),
)
def test_splits_cover_the_ranges_exactly(
    edges: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    whole = [
        OffsetRange("t", OLD, index, start, start + size)
        for index, (start, size) in enumerate(edges)
    ]
    parts = split_ranges(whole, min_partitions, max_records)
    assert all(part.size > 0 for part in parts)
    for offset_range in whole:
        pieces = [part for part in parts if part.partition == offset_range.partition]
        assert sum(piece.size for piece in pieces) == offset_range.size
        edges_of = [(piece.start, piece.end) for piece in pieces]
        assert all(before[1] == after[0] for before, after in pairwise(edges_of))
    if max_records is not None:
        assert all(part.size <= max_records for part in parts)
    if min_partitions is not None and sum(part.size for part in whole) >= 10 * min_partitions:
        assert len(parts) >= min_partitions // 2


# startingOffsets and endingOffsets.


def resolved(
    limit: OffsetLimit, by_timestamp: Mapping[TopicPartition, int], *, starting: bool
) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    return resolve_limit(
        limit,
        "startingOffsets",
        snapshot({P0: (2, 9), P1: (0, 5)}),
        by_timestamp,
        starting=starting,
    )


def test_earliest_latest_and_specific_offsets() -> None:
    assert resolved(EARLIEST, {}, starting=True) == ({P0: 2, P1: 0}, [])
    assert resolved(LATEST, {}, starting=True) == ({P0: 9, P1: 5}, [])
    assert resolved(SpecificOffsets({P0: LATEST, P1: 3}), {}, starting=True) == ({P0: 9, P1: 3}, [])


def test_offsets_outside_the_log_are_data_loss() -> None:
    resolved_offsets, losses = resolved(SpecificOffsets({P0: 1, P1: 50}), {}, starting=True)
    assert resolved_offsets == {P0: 2, P1: 5}
    assert [(loss.partition, loss.start, loss.end) for loss in losses] == [(P0, 1, 2), (P1, 5, 50)]
    assert "startingOffsets is 50, but the log has offsets 0 to 5" in str(losses[1])


def test_specific_offsets_must_name_exactly_the_partitions_of_the_query() -> None:
    with pytest.raises(OptionError, match="does not include orders-1"):
        resolved(SpecificOffsets({P0: 1}), {}, starting=True)
    with pytest.raises(OptionError, match="includes orders-2"):
        resolved(SpecificOffsets({P0: 1, P1: 1, P2: 1}), {}, starting=True)
    with pytest.raises(OptionError, match="does not include orders-1"):
        limit_timestamps(
            SpecificTimestamps({P0: 1000}, False, "startingOffsetsByTimestamp"), [P0, P1]
        )


def test_timestamps() -> None:
    assert limit_timestamps(EARLIEST, [P0]) == {}
    assert limit_timestamps(SpecificTimestamps(1000, False, "startingTimestamp"), [P0, P1]) == {
        P0: 1000,
        P1: 1000,
    }
    strict, lenient = (
        SpecificTimestamps(1000, False, "startingTimestamp"),
        SpecificTimestamps(1000, True, "startingTimestamp"),
    )
    by_timestamp = {P0: 4, P1: NO_OFFSET}
    assert resolved(lenient, by_timestamp, starting=True) == ({P0: 4, P1: 5}, [])
    assert resolved(strict, by_timestamp, starting=False) == ({P0: 4, P1: 5}, [])
    with pytest.raises(
        OptionError, match="orders-1 has no record with that timestamp or a later one"
    ):
        resolved(strict, by_timestamp, starting=True)


def test_time_relative_to_now() -> None:
    relative = RelativeTime(600_000, True, "startingOffsets")
    assert relative.at(1_700_000_000_000) == SpecificTimestamps(
        1_699_999_400_000, True, "startingOffsets"
    )
    assert relative.at(1000).timestamps == 0, "there is no time before 1970"
