"""Batch queries against a real broker, without Spark: plans for every option, and fetching."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.errors import ConnectionFailed
from penstock.client.metadata import PartitionInfo, TopicInfo
from penstock.errors import KafkaError
from penstock.protocol.messages.fetch import FetchRequest
from penstock.spark.options import OptionError, source_options
from penstock.spark.source.batch import (
    BatchReader,
    combine_small,
    plan,
    read_range,
    read_ranges,
)
from penstock.spark.source.data_loss import DataLossError
from penstock.spark.source.pushdown import FilterBounds
from penstock.spark.source.range_groups import TASKS_PER_CORE
from penstock.spark.source.ranges import OffsetRange
from tests.spark.live import create_topics, produce_numbers
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


def test_positions_relative_to_now(broker: TopicBroker) -> None:
    """The records of this topic are hours apart, and the last one is of now."""
    broker.create("hours", 2, 0)
    now_ms = time.time_ns() // 1_000_000
    for hours in (3, 2, 1, 0):
        broker.produce("hours", 0, 1, timestamp=now_ms - hours * HOUR_MS)
    assert broker.plan(subscribe="hours", startingOffsets="-90 minutes") == [("hours", 0, 2, 4)]
    assert broker.plan(subscribe="hours", startingTimestamp="-1d") == [("hours", 0, 0, 4)]
    assert broker.plan(subscribe="hours", endingTimestamp="-90m") == [("hours", 0, 0, 2)]
    # Partition 1 has no such record.
    with pytest.raises(OptionError, match="hours-1 has no record with that timestamp"):
        broker.plan(
            subscribe="hours",
            startingOffsets="-1 hour 30 minutes",
            startingOffsetsByTimestampStrategy="error",
        )


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
        {
            "kafka.bootstrap.servers": "localhost:1",
            "subscribe": "orders",
            "kafka.default.api.timeout.ms": "300",
        },
        streaming=False,
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


@pytest.mark.parametrize("fail", ["true", "false"])
def test_fetch_without_progress_is_an_error_and_never_skipped(
    broker: TopicBroker, two: str, fail: str
) -> None:
    options = {
        "kafka.default.api.timeout.ms": "300",
        "kafka.fetch.max.wait.ms": "50",
        "failOnDataLoss": fail,
    }
    with pytest.raises(
        KafkaError,
        match=(
            r"REQUEST_TIMED_OUT: two-0 at offset 10: the broker has returned no records for "
            r"0\.3 s, but the batch ends at offset 12"
        ),
    ):
        values(broker, two, 8, 12, **options)
    with pytest.raises(KafkaError, match="two-0 at offset 50: two-0 ends at 10, before 50"):
        values(broker, two, 50, 60, **options)


def test_time_in_the_consumer_is_not_time_without_progress(
    broker: TopicBroker, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow query takes longer than the timeout for what one Fetch returned."""
    batches = read_ranges(
        source_options(
            broker.options(
                subscribe=two,
                **{
                    "kafka.default.api.timeout.ms": "200",
                    "kafka.max.partition.fetch.bytes": "1",
                },
            ),
            streaming=False,
        ),
        broker_ranges(broker, two),
    )
    monkeypatch.setattr("penstock.spark.source.batch._SMALL_BATCH_ROWS", 1)
    read = []
    for batch in batches:
        read.append(batch)
        if len(read) in (1, 5):
            time.sleep(0.3)
    assert sum(batch.num_rows for batch in read) == 20


def broker_ranges(broker: TopicBroker, topic: str) -> list[OffsetRange]:
    options = source_options(broker.options(subscribe=topic), streaming=False)
    return broker.call(lambda client: plan(client, options, FilterBounds()))


def is_consumer_fetch(request: object) -> bool:
    """The brokers run in this process, and fetch as replicas."""
    return (
        isinstance(request, FetchRequest)
        and request.replica_id == request.replica_state.replica_id == -1
    )


def test_one_fetch_reads_the_ranges_of_many_partitions(
    broker: TopicBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("many", 40, 3)
    options = source_options(broker.options(subscribe="many"), streaming=False)
    ranges = broker_ranges(broker, "many")
    # One range in the middle, and one without its last record.
    ranges[5] = replace(ranges[5], start=1, end=2)
    ranges[6] = replace(ranges[6], end=2)
    sent: list[object] = []
    send = Connection.send

    def counting(connection: Connection, request: object, *rest: Any, **more: Any) -> Any:
        if is_consumer_fetch(request):
            sent.append(request)
        return send(connection, request, *rest, **more)

    monkeypatch.setattr(Connection, "send", counting)
    batches = list(read_ranges(options, ranges))
    assert len(sent) == 1
    assert len(batches) == 1, "small Arrow batches are combined"
    rows = batches[0].to_pylist()
    expected = {index: [0, 1, 2] for index in range(40)} | {5: [1], 6: [0, 1]}
    for index, offsets in expected.items():
        assert [row["offset"] for row in rows if row["partition"] == index] == offsets
        assert [row["value"] for row in rows if row["partition"] == index] == [
            f"{index}/{offset}".encode() for offset in offsets
        ]


def test_ranges_are_fetched_with_one_request_per_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.Cluster(brokers=3) as cluster:
        servers = cluster.bootstrap_servers
        create_topics(servers, 30, "spread")
        produce_numbers(servers, "spread", 30, 0, 120)
        options = source_options(
            {"kafka.bootstrap.servers": servers, "subscribe": "spread"}, streaming=False
        )
        reader = BatchReader(options)
        ranges = [each for planned in reader.partitions() for each in planned.value.ranges]
        addresses: list[str] = []
        send = Connection.send

        def counting(connection: Connection, request: object, *rest: Any, **more: Any) -> Any:
            if is_consumer_fetch(request):
                addresses.append(connection.address)
            return send(connection, request, *rest, **more)

        monkeypatch.setattr(Connection, "send", counting)
        read = sorted(int(value) for value in _values(read_ranges(options, ranges)))
        assert read == list(range(120))
        assert len(addresses) == len(set(addresses)) == 3


def test_failing_partition_does_not_delay_the_others(
    broker: TopicBroker, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 1 has another leader in the client's metadata, as after an election."""
    ranges = broker_ranges(broker, two)
    real, moved = TopicInfo.partition, count()

    def partition(topic: TopicInfo, index: int) -> PartitionInfo:
        info = real(topic, index)
        return replace(info, leader=99) if index == 1 and next(moved) < 2 else info

    monkeypatch.setattr(TopicInfo, "partition", partition)
    options = source_options(broker.options(subscribe=two), streaming=False)
    read = [value for batch in read_ranges(options, ranges) for value in _values(iter([batch]))]
    assert read == [f"{index}/{at}" for index in (0, 1) for at in range(10)]
    assert next(moved) > 2


def test_lost_records_of_one_range_do_not_end_the_others(broker: TopicBroker) -> None:
    broker.create("partly", 2)
    ranges = broker_ranges(broker, "partly")
    broker.delete_records("partly", 0, 4)
    lenient = source_options(
        broker.options(subscribe="partly", failOnDataLoss="false"), streaming=False
    )
    assert sorted(_values(read_ranges(lenient, ranges))) == sorted(
        [*(f"0/{at}" for at in range(4, 10)), *(f"1/{at}" for at in range(10))]
    )
    strict = source_options(broker.options(subscribe="partly"), streaming=False)
    with pytest.raises(DataLossError, match="partly-0: offsets 0 to 3 cannot be read"):
        list(read_ranges(strict, ranges))


def test_small_arrow_batches_are_combined_in_order() -> None:
    def batch(first: int, rows: int) -> pa.RecordBatch:
        return pa.record_batch([pa.array(range(first, first + rows))], names=["n"])

    large = batch(100, 20_000)
    combined = list(combine_small([batch(0, 40), batch(40, 60), large, batch(20_100, 5)]))
    assert [each.num_rows for each in combined] == [100, 20_000, 5]
    assert combined[1] is large, "a large batch is not copied"
    assert [n for each in combined for n in each.column(0).to_pylist()] == list(range(20_105))
    assert list(combine_small([])) == []
    halves = [batch(at, 6000) for at in range(0, 24_000, 6000)]
    assert [each.num_rows for each in combine_small(halves)] == [12_000, 12_000]


def test_wide_topic_has_few_input_partitions(broker: TopicBroker) -> None:
    broker.create("wide", 300, 0)
    broker.produce("wide", 7, 2)
    for partition in range(0, 300, 2):
        broker.produce("wide", partition, 1)
    options = source_options(broker.options(subscribe="wide"), streaming=False)
    planned = BatchReader(options).partitions()
    assert len(planned) <= (os.cpu_count() or 1) * TASKS_PER_CORE
    assert sum(len(each.value.ranges) for each in planned) == 151
    rows = [
        row for each in planned for batch in BatchReader(options).read(each) for row in _rows(batch)
    ]
    assert len(rows) == len(set(rows)) == 152


def _rows(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in batch.to_pylist()]


def test_tasks_know_the_brokers_of_the_planner(broker: TopicBroker, two: str) -> None:
    options = source_options(broker.options(subscribe=two), streaming=False)
    port = int(broker.servers.rpartition(":")[2])
    for planned in BatchReader(options).partitions():
        assert [known[1] for known in planned.value.known_brokers] == [port]


def test_cached_metadata_of_an_older_topic_is_not_taken_for_a_newer_one(
    broker: TopicBroker,
) -> None:
    """A Python worker keeps its client, which knows the topic as it was some batches ago."""
    options = source_options(
        broker.options(subscribe="renewed", failOnDataLoss="false"), streaming=False
    )
    broker.create("renewed", 1, 2)
    assert len(_values(read_range(options, broker_ranges(broker, "renewed")[0]))) == 2
    broker.call(lambda client: client.admin.delete_topic("renewed"))
    broker.create("renewed", 1, 3)
    (planned,) = broker_ranges(broker, "renewed")
    assert _values(read_range(options, planned)) == ["0/0", "0/1", "0/2"]


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
