"""The streaming reader against a real broker, without Spark: offsets, limits and data loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from penstock.errors import KafkaError
from penstock.spark.source.data_loss import DataLossError
from penstock.spark.source.offsets import LAG_KEY
from penstock.spark.source.stream import StreamReader
from tests.spark.topic_broker import TopicBroker, topic_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[TopicBroker]:
    with topic_broker() as broker:
        yield broker


def ranges_of(
    reader: StreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[int, int, int]]:
    return [
        (planned.value.partition, planned.value.start, planned.value.end)
        for planned in reader.partitions(start, end)
    ]


def test_next_batch_starts_at_the_end_of_the_last(broker: TopicBroker) -> None:
    broker.create("going", 1)
    reader = broker.stream(subscribe="going", startingOffsets="earliest")
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
    strict = broker.stream(subscribe="gone", startingOffsets="earliest")
    lenient = broker.stream(subscribe="gone", startingOffsets="earliest", failOnDataLoss="false")
    all_available = ReadAllAvailable()
    start = strict.initialOffset()
    end = strict.latestOffset(start, all_available)
    broker.call(lambda client: client.admin.delete_topic("gone"))
    with pytest.raises(
        DataLossError,
        match="gone-0: offsets from 10 on cannot be read: the partition does not exist",
    ):
        strict.latestOffset(end, all_available)
    assert lenient.latestOffset(end, all_available) == {}
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


def test_missing_topic_is_an_error(broker: TopicBroker) -> None:
    reader = broker.stream(subscribe="nowhere")
    with pytest.raises(KafkaError, match="topic nowhere does not exist"):
        reader.initialOffset()
    reader.stop()
