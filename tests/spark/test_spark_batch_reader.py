"""Batch queries against a real broker, without Spark: plans for every option, and fetching."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pytest

from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.errors import ConnectionFailed
from penstock.errors import KafkaError
from penstock.spark.options import OptionError, source_options
from penstock.spark.source.batch import BatchReader, plan, read_range
from penstock.spark.source.data_loss import DataLossError
from penstock.spark.source.pushdown import FilterBounds
from penstock.spark.source.ranges import OffsetRange
from tests.spark.topic_broker import HOUR_MS, START_MS, UNBOUNDED, TopicBroker, topic_broker

ONE_PARTITION = '{"two": [0]}'


@pytest.fixture(scope="module")
def broker() -> Iterator[TopicBroker]:
    with topic_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def two(broker: TopicBroker) -> str:
    return broker.create("two", 2)


def test_subscriptions(broker: TopicBroker, two: str) -> None:
    broker.create("two-more", 1, 3)
    both = [("two", 0, 0, 10), ("two", 1, 0, 10)]
    assert broker.plan(subscribe=two) == both
    assert broker.plan(subscribe="two,two-more") == [*both, ("two-more", 0, 0, 3)]
    assert broker.plan(subscribePattern="two-m.*") == [("two-more", 0, 0, 3)]
    assert broker.plan(subscribePattern="two") == both
    assert broker.plan(subscribePattern="nothing.*") == []
    assert broker.plan(assign='{"two": [1]}') == [("two", 1, 0, 10)]


def test_starting_and_ending_offsets(broker: TopicBroker, two: str) -> None:
    starting, ending = '{"two": {"0": 4, "1": -2}}', '{"two": {"0": -1, "1": 3}}'
    assert broker.plan(subscribe=two, startingOffsets=starting, endingOffsets=ending) == [
        ("two", 0, 4, 10),
        ("two", 1, 0, 3),
    ]
    at = {
        "startingTimestamp": str(START_MS + HOUR_MS),
        "endingTimestamp": str(START_MS + 2 * HOUR_MS + 1),
    }
    assert broker.plan(bounds=UNBOUNDED, subscribe=two, **at) == [
        ("two", 0, 1, 3),
        ("two", 1, 1, 3),
    ]
    each = f'{{"two": {{"0": {START_MS}, "1": {START_MS + 9 * HOUR_MS}}}}}'
    assert broker.plan(subscribe=two, startingOffsetsByTimestamp=each) == [
        ("two", 0, 0, 10),
        ("two", 1, 9, 10),
    ]
    late = str(START_MS + 99 * HOUR_MS)
    with pytest.raises(OptionError, match="two-0 has no record with that timestamp or a later one"):
        broker.plan(subscribe=two, startingTimestamp=late)
    assert (
        broker.plan(
            subscribe=two, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest"
        )
        == []
    )
    assert broker.plan(subscribe=two, endingTimestamp=late) == [
        ("two", 0, 0, 10),
        ("two", 1, 0, 10),
    ]


def test_min_partitions_and_max_records_split_ranges(broker: TopicBroker, two: str) -> None:
    assert [planned[2:] for planned in broker.plan(subscribe=two, minPartitions="4")] == [
        (0, 5),
        (5, 10),
        (0, 5),
        (5, 10),
    ]
    assert [
        planned[2:] for planned in broker.plan(assign='{"two": [0]}', maxRecordsPerPartition="4")
    ] == [
        (0, 3),
        (3, 6),
        (6, 10),
    ]


def test_pushed_filters_narrow_the_ranges(broker: TopicBroker, two: str) -> None:
    assert broker.plan(
        bounds=FilterBounds(partitions=frozenset({1}), start=2, end=5), subscribe=two
    ) == [("two", 1, 2, 5)]
    assert broker.plan(
        bounds=FilterBounds(min_timestamp_ms=START_MS + 8 * HOUR_MS), subscribe=two
    ) == [
        ("two", 0, 8, 10),
        ("two", 1, 8, 10),
    ]
    assert (
        broker.plan(bounds=FilterBounds(min_timestamp_ms=START_MS + 99 * HOUR_MS), subscribe=two)
        == []
    )


def test_missing_topics_partitions_and_offsets_are_errors(broker: TopicBroker, two: str) -> None:
    with pytest.raises(
        KafkaError, match="topic nowhere does not exist: create it, or correct the option"
    ):
        broker.plan(subscribe="nowhere")
    with pytest.raises(KafkaError, match="assign includes two-7, which does not exist"):
        broker.plan(assign='{"two": [0, 7]}')
    with pytest.raises(OptionError, match="does not include two-1"):
        broker.plan(subscribe=two, startingOffsets='{"two": {"0": 4}}')
    out_of_range = '{"two": {"0": 4, "1": 11}}'
    with pytest.raises(
        DataLossError,
        match="two-1: offsets 10 to 10 cannot be read: startingOffsets is 11",
    ):
        broker.plan(subscribe=two, startingOffsets=out_of_range)
    assert broker.plan(subscribe=two, startingOffsets=out_of_range, failOnDataLoss="false") == [
        ("two", 0, 4, 10)
    ]


def test_unreachable_broker_is_an_error() -> None:
    options = source_options(
        {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders"}, streaming=False
    )
    with pytest.raises(
        KafkaError,
        match=r"localhost:1: connection refused: check the option kafka\.bootstrap\.servers",
    ):
        BatchReader(options).partitions()


def values(broker: TopicBroker, topic: str, start: int, end: int, **options: str) -> list[str]:
    parsed = source_options(broker.options(subscribe=topic, **options), streaming=False)
    topic_id = broker.call(lambda client: client.admin.describe_topics([topic]))[0].id
    return _values(read_range(parsed, OffsetRange(topic, topic_id, 0, start, end)))


def _values(batches: Iterator[pa.RecordBatch]) -> list[str]:
    return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]


def test_ranges_are_independent_of_batch_boundaries(broker: TopicBroker, two: str) -> None:
    assert values(broker, two, 3, 6) == ["0/3", "0/4", "0/5"]
    # A broker returns at least one batch, however large.
    assert len(values(broker, two, 0, 10, **{"kafka.max.partition.fetch.bytes": "1"})) == 10


def test_connection_failures_are_retried_until_the_api_timeout(
    broker: TopicBroker, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker_connection, calls = Cluster.broker, count()

    async def flaky(cluster: Cluster, node_id: int) -> Connection:
        if next(calls) % 2 == 0:
            raise ConnectionFailed("connection lost")
        return await broker_connection(cluster, node_id)

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "broker", flaky)
        assert values(broker, two, 0, 10) == [f"0/{index}" for index in range(10)]
        assert next(calls) == 2, "one failure, one success"
    with (
        monkeypatch.context() as patch,
        pytest.raises(KafkaError, match="two-0 at offset 4: connection lost"),
    ):
        patch.setattr(Cluster, "broker", _unreachable)
        values(broker, two, 4, 10, **{"kafka.default.api.timeout.ms": "300"})


async def _unreachable(_cluster: Cluster, _node_id: int) -> Connection:
    raise ConnectionFailed("connection lost")


def test_deleted_records_are_an_error_or_skipped(broker: TopicBroker) -> None:
    broker.create("shrinking", 1)
    broker.delete_records("shrinking", 0, 4)
    with pytest.raises(
        DataLossError,
        match="shrinking-0: offsets 1 to 3 cannot be read: the log starts at offset 4",
    ):
        values(broker, "shrinking", 1, 6)
    assert values(broker, "shrinking", 1, 6, failOnDataLoss="false") == ["0/4", "0/5"]


def test_offsets_beyond_the_log_end_are_an_error(broker: TopicBroker, two: str) -> None:
    options = {"kafka.default.api.timeout.ms": "300", "kafka.fetch.max.wait.ms": "50"}
    with pytest.raises(
        DataLossError,
        match="two-0: offsets 10 to 11 cannot be read: the log has ended there",
    ):
        values(broker, two, 8, 12, **options)
    with pytest.raises(KafkaError, match="two-0 at offset 50: two-0 ends at 10, before 50"):
        values(broker, two, 50, 60, **options)


def test_recreated_topic_is_not_read_in_place_of_the_old_one(broker: TopicBroker) -> None:
    broker.create("again", 1)
    options = source_options(broker.options(subscribe="again"), streaming=False)
    planned = broker.call(lambda client: plan(client, options, FilterBounds()))
    broker.call(lambda client: client.admin.delete_topic("again"))
    broker.create("again", 1)
    with pytest.raises(
        DataLossError,
        match=("again-0: offsets 0 to 9 cannot be read: the topic was deleted and created again"),
    ):
        _values(read_range(options, planned[0]))
