"""The streaming reader against a real broker, without Spark: offsets, limits and data loss."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from penstock.client.cluster import Cluster
from penstock.errors import KafkaError
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.spark.source.data_loss import DataLossError
from penstock.spark.source.offsets import LAG_KEY, METRICS_KEY
from penstock.spark.source.stream import StreamReader
from tests.spark.topic_broker import HOUR_MS, TopicBroker, topic_broker

# Fetches the partitions again at each trigger.
FRESH = {"kafka.metadata.max.age.ms": "0"}


@pytest.fixture(scope="module")
def broker() -> Iterator[TopicBroker]:
    with topic_broker() as broker:
        yield broker


def ranges_of(
    reader: StreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[int, int, int]]:
    return [
        (each.partition, each.start, each.end)
        for planned in reader.partitions(start, end)
        for each in planned.value.ranges
    ]


def test_next_batch_starts_at_the_end_of_the_last(broker: TopicBroker) -> None:
    broker.create("going", 1)
    reader = broker.stream(subscribe="going", startingOffsets="earliest", **FRESH)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    assert ranges_of(reader, start, first) == [(0, 0, 10)]
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    broker.produce("going", 0, 5)
    broker.call(lambda client: client.admin.create_partitions("going", 2))
    broker.produce("going", 1, 3)
    second = reader.latestOffset(first, ReadAllAvailable())
    reader.stop()
    restarted = broker.stream(subscribe="going", startingOffsets="earliest")
    assert ranges_of(restarted, first, second) == [(0, 10, 15), (1, 0, 3)]
    assert ranges_of(restarted, second, second) == []
    restarted.stop()


def test_repeated_first_batch_reads_the_same_offsets(broker: TopicBroker) -> None:
    """After a restart Spark asks a new reader for the initial offset, which is a later one."""
    broker.create("first", 1)
    reader = broker.stream(subscribe="first")
    start = reader.initialOffset()
    broker.produce("first", 0, 2)
    assert reader.initialOffset() == start
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.stop()
    broker.produce("first", 0, 5)
    restarted = broker.stream(subscribe="first")
    assert ranges_of(restarted, restarted.initialOffset(), end) == [(0, 10, 12)]
    restarted.stop()


def test_min_and_max_offsets_per_trigger(broker: TopicBroker) -> None:
    broker.create("limited", 1)
    reader = broker.stream(
        subscribe="limited",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="4",
        minOffsetsPerTrigger="3",
    )
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    first = reader.latestOffset(reader.initialOffset(), limit)
    second = reader.latestOffset(first, limit)
    assert ranges_of(reader, first, second) == [(0, 4, 8)]
    assert reader.reportLatestOffset() is not None
    assert (reader.reportLatestOffset() or {})[LAG_KEY] == 2
    assert reader.latestOffset(second, limit) == second, "two are left, the minimum is three"
    assert ranges_of(reader, second, reader.latestOffset(second, ReadAllAvailable())) == [
        (0, 8, 10)
    ]
    reader.stop()
    delayed = broker.stream(
        subscribe="limited",
        startingOffsets="earliest",
        minOffsetsPerTrigger="11",
        maxTriggerDelay="0ms",
    )
    assert delayed.getDefaultReadLimit() == ReadMinRows(11)
    start = delayed.initialOffset()
    assert ranges_of(delayed, start, delayed.latestOffset(start, ReadMinRows(11))) == [(0, 0, 10)]
    delayed.stop()


def test_available_now_ends_at_the_offsets_of_its_start(broker: TopicBroker) -> None:
    broker.create("now", 1)
    reader = broker.stream(subscribe="now", startingOffsets="earliest", minOffsetsPerTrigger="99")
    reader.prepareForTriggerAvailableNow()
    broker.produce("now", 0, 5)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert ranges_of(reader, start, end) == [(0, 0, 10)]
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    reader.stop()


def test_lost_data_is_an_error_or_skipped(broker: TopicBroker) -> None:
    broker.create("gone", 1)
    strict = broker.stream(subscribe="gone", startingOffsets="earliest", **FRESH)
    lenient = broker.stream(subscribe="gone", failOnDataLoss="false", **FRESH)
    all_available = ReadAllAvailable()
    start = strict.initialOffset()
    end = strict.latestOffset(start, all_available)
    broker.call(lambda client: client.admin.delete_topic("gone"))
    with pytest.raises(
        DataLossError,
        match="gone-0: offsets from 10 on cannot be read: the partition does not exist",
    ):
        strict.latestOffset(end, all_available)
    assert lenient.latestOffset(end, all_available) == end, "the checkpoint keeps the offset"
    broker.create("gone", 1, 3)
    with pytest.raises(DataLossError, match="the topic was deleted and created again"):
        strict.latestOffset(end, all_available)
    renewed = lenient.latestOffset(end, all_available)
    assert ranges_of(lenient, end, renewed) == [(0, 0, 3)]
    broker.produce("gone", 0, 5)
    broker.delete_records("gone", 0, 6)
    with pytest.raises(DataLossError, match="gone-0: offsets 3 to 5 cannot be read"):
        strict.latestOffset(renewed, all_available)
    assert ranges_of(lenient, renewed, lenient.latestOffset(renewed, all_available)) == [(0, 6, 8)]
    strict.stop()
    lenient.stop()


def test_offsets_of_a_vanished_topic_are_kept_while_others_advance(
    broker: TopicBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create("stays", 1)
    broker.create("vanishes", 1)
    reader = broker.stream(
        subscribe="stays,vanishes", startingOffsets="earliest", failOnDataLoss="false"
    )
    limit = ReadAllAvailable()
    first = reader.latestOffset(reader.initialOffset(), limit)
    broker.call(lambda client: client.admin.delete_topic("vanishes"))
    broker.produce("stays", 0, 2)
    with caplog.at_level(logging.WARNING, logger="penstock.spark"):
        second = reader.latestOffset(first, limit)
        assert second["vanishes"] == first["vanishes"]
        assert second["stays"]["0"] == 12
        assert ranges_of(reader, first, second) == [(0, 10, 12)]
        assert reader.latestOffset(second, limit) == second
    warnings = [record.message for record in caplog.records]
    assert len(warnings) == 1, "a loss that lasts is logged once"
    assert "vanishes-0: offsets from 10 on cannot be read" in warnings[0]
    # As after a restart: the kept offset is that of another topic now.
    broker.create("vanishes", 1, 3)
    strict = broker.stream(subscribe="stays,vanishes")
    with pytest.raises(DataLossError, match=r"vanishes-0: .* deleted and created again"):
        strict.latestOffset(second, limit)
    lenient = broker.stream(subscribe="stays,vanishes", failOnDataLoss="false")
    renewed = lenient.latestOffset(second, limit)
    assert ranges_of(lenient, second, renewed) == [(0, 0, 3)]


def test_unsubscribed_topic_is_not_reported_as_deleted(broker: TopicBroker) -> None:
    broker.create("read", 1)
    broker.create("unread", 1)
    both = broker.stream(subscribe="read,unread", startingOffsets="earliest")
    limit = ReadAllAvailable()
    end = both.latestOffset(both.initialOffset(), limit)
    one = broker.stream(subscribe="read")
    with pytest.raises(
        DataLossError,
        match=(
            "unread-0: offsets from 10 on cannot be read: the query does not subscribe to the "
            "partition any more"
        ),
    ):
        one.latestOffset(end, limit)
    lenient = broker.stream(subscribe="read", failOnDataLoss="false")
    broker.produce("read", 0, 1)
    later = lenient.latestOffset(end, limit)
    assert (later["read"]["0"], later["unread"]["0"]) == (11, 10)
    broker.produce("unread", 0, 4)
    again = broker.stream(subscribe="read,unread")
    assert ranges_of(again, later, again.latestOffset(later, limit)) == [(0, 10, 14)]


def test_partitions_are_cached_between_triggers(
    broker: TopicBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("cached", 1)
    reader = broker.stream(
        subscribe="cached", startingOffsets="earliest", **{"kafka.metadata.max.age.ms": "60000"}
    )
    limit = ReadAllAvailable()
    end = reader.latestOffset(reader.initialOffset(), limit)
    fetched: list[object] = []
    fetch = Cluster._fetch_metadata

    async def counting(cluster: Cluster, request: MetadataRequest) -> MetadataResponse:
        fetched.append(request)
        return await fetch(cluster, request)

    monkeypatch.setattr(Cluster, "_fetch_metadata", counting)
    for _trigger in range(3):
        broker.produce("cached", 0, 1)
        before, end = end, reader.latestOffset(end, limit)
        assert len(ranges_of(reader, before, end)) == 1
    assert fetched == [], "a trigger asks for offsets only"


@pytest.mark.parametrize("subscription", [{"subscribe": "grows"}, {"subscribePattern": "gro.*"}])
def test_new_partitions_are_found_when_the_cached_ones_are_too_old(
    broker: TopicBroker, subscription: dict[str, str]
) -> None:
    topics = broker.call(lambda client: client.admin.list_topics())
    if "grows" not in topics:
        broker.create("grows", 1)
    partitions = len(
        broker.call(lambda client: client.admin.describe_topics(["grows"]))[0].partitions
    )
    reader = broker.stream(**subscription, **{"kafka.metadata.max.age.ms": "300"})
    limit = ReadAllAvailable()
    end = reader.latestOffset(reader.initialOffset(), limit)
    broker.call(lambda client: client.admin.create_partitions("grows", partitions + 1))
    broker.produce("grows", partitions, 2)
    deadline = time.monotonic() + 10
    while (found := reader.latestOffset(end, limit)) == end:
        assert time.monotonic() < deadline, "the new partition was not found"
        time.sleep(0.02)
    assert ranges_of(reader, end, found) == [(partitions, 0, 2)]


def test_fetch_without_progress_is_skipped_only_after_the_log_was_compared(
    broker: TopicBroker,
) -> None:
    """A repeated batch ends beyond the end of the log, as after an unclean leader election."""
    broker.create("truncated", 1)
    reader = broker.stream(subscribe="truncated", startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    def at(offset: int) -> dict[str, Any]:
        return {"truncated": {**end["truncated"], "0": offset}}

    restarted = broker.stream(subscribe="truncated")
    with pytest.raises(
        DataLossError, match="truncated-0: offsets 10 to 14 cannot be read: the log ends at"
    ):
        restarted.partitions(at(8), at(15))
    lenient = broker.stream(subscribe="truncated", failOnDataLoss="false")
    assert ranges_of(lenient, at(8), at(15)) == [(0, 8, 10)]


def test_max_bytes_per_trigger(broker: TopicBroker) -> None:
    """Records of 1000 bytes in one partition, and of 100 bytes in the other."""
    broker.create("bytes", 2, 0)
    for _batch in range(20):
        broker.produce("bytes", 0, 10, size=1000)
        broker.produce("bytes", 1, 10, size=100)
    reader = broker.stream(
        subscribe="bytes", startingOffsets="earliest", maxBytesPerTrigger="44000"
    )
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(44000)
    start = reader.initialOffset()
    first = reader.latestOffset(start, limit)
    # 200 records of about 1015 bytes and 200 of about 115: a fifth of them is 45 kB.
    large, small = (first["bytes"][partition] for partition in ("0", "1"))
    assert large == small
    assert 36 <= large <= 41
    progress = reader.reportLatestOffset() or {}
    behind = int(progress[METRICS_KEY]["estimatedTotalBytesBehindLatest"])
    assert 160_000 < behind < 200_000
    triggers = 1
    end = first
    while (following := reader.latestOffset(end, limit)) != end:
        end, triggers = following, triggers + 1
    assert (end["bytes"]["0"], end["bytes"]["1"]) == (200, 200)
    assert triggers in (5, 6, 7)
    assert reader.latestOffset(start, ReadAllAvailable())["bytes"]["0"] == 200


def test_max_bytes_per_trigger_takes_at_least_one_record(broker: TopicBroker) -> None:
    broker.create("tiny", 1, 3)
    reader = broker.stream(subscribe="tiny", startingOffsets="earliest", maxBytesPerTrigger="1")
    start = reader.initialOffset()
    assert ranges_of(reader, start, reader.latestOffset(start, ReadMaxBytes(1))) == [(0, 0, 1)]


def test_max_bytes_and_max_offsets_both_hold(broker: TopicBroker) -> None:
    broker.create("both", 1, 100)
    reader = broker.stream(
        subscribe="both",
        startingOffsets="earliest",
        maxBytesPerTrigger="1m",
        maxOffsetsPerTrigger="7",
    )
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert ranges_of(reader, start, end) == [(0, 0, 7)]


def test_metrics_have_the_names_of_sparks_connector(broker: TopicBroker) -> None:
    broker.create("measured", 2, 10)
    reader = broker.stream(
        subscribe="measured", startingOffsets="earliest", maxOffsetsPerTrigger="4"
    )
    broker.produce("measured", 1, 20)
    reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    progress = reader.reportLatestOffset() or {}
    assert progress[LAG_KEY] == 36
    assert progress[METRICS_KEY] == {
        "minOffsetsBehindLatest": "9",
        "maxOffsetsBehindLatest": "27",
        "avgOffsetsBehindLatest": "18.0",
    }


def test_first_start_relative_to_now_is_kept(broker: TopicBroker) -> None:
    broker.create("recent", 1, 0)
    now_ms = time.time_ns() // 1_000_000
    for hours in (2, 0):
        broker.produce("recent", 0, 1, timestamp=now_ms - hours * HOUR_MS)
    reader = broker.stream(subscribe="recent", startingOffsets="-1 hour")
    start = reader.initialOffset()
    assert start["recent"]["0"] == 1
    end = reader.latestOffset(start, ReadAllAvailable())
    assert ranges_of(reader, start, end) == [(0, 1, 2)]


def test_missing_topic_is_an_error(broker: TopicBroker) -> None:
    reader = broker.stream(subscribe="nowhere")
    with pytest.raises(KafkaError, match="topic nowhere does not exist"):
        reader.initialOffset()
    reader.stop()
