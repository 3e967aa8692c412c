"""Readers against a real broker, without Spark around them: planning by every option, fetching, and
what a stream's reader answers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

import penstock
from penstock.client.client import Client
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.faults import ConnectionFailed
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.options import OptionError, source_options
from penstock.spark.source.batch import BatchReader, plan, read_range
from penstock.spark.source.data_loss import DataLossError
from penstock.spark.source.offsets import LAG_KEY
from penstock.spark.source.pushdown import FilterBounds
from penstock.spark.source.ranges import OffsetRange
from penstock.spark.source.stream import StreamReader

T = TypeVar("T")
HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000
EVERYTHING = FilterBounds()


class Broker:
    """A broker, and topics with records of one an hour in each partition."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._background = BlockingClient(
            source_options(self.options(subscribe="any"), streaming=False).connection
        ).__enter__()

    def close(self) -> None:
        self._background.__exit__(None, None, None)

    def options(self, **given: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, **given}

    def ask(self, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return self._background.call(ask)

    def create(self, topic: str, partitions: int, records: int = 10) -> str:
        self.ask(lambda client: client.admin.create_topic(topic, partitions=partitions))
        for partition in range(partitions):
            self.fill(topic, partition, records)
        return topic

    def fill(self, topic: str, partition: int, records: int) -> None:
        async def send(client: Client) -> None:
            async with client.producer() as producer:
                for index in range(records):
                    value = f"{partition}/{index}".encode()
                    await producer.send(
                        topic, value, partition=partition, timestamp=BEGIN_MS + index * HOUR_MS
                    )

        self.ask(send)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.ask(
            lambda client: client.admin.delete_records({TopicPartition(topic, partition): before})
        )

    def plan(
        self, *, bounds: FilterBounds = EVERYTHING, **given: str
    ) -> list[tuple[str, int, int, int]]:
        options = source_options(self.options(**given), streaming=False)
        found = self.ask(lambda client: plan(client, options, bounds))
        return [(one.topic, one.partition, one.start, one.end) for one in found]

    def stream(self, **given: str) -> StreamReader:
        return StreamReader(source_options(self.options(**given), streaming=True))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with penstock.Cluster() as cluster:
        broker = Broker(cluster.bootstrap_servers)
        yield broker
        broker.close()


@pytest.fixture(scope="module")
def two(broker: Broker) -> str:
    return broker.create("two", 2)


# Batch plans.


def test_what_is_read(broker: Broker, two: str) -> None:
    broker.create("two-more", 1, 3)
    everything = [("two", 0, 0, 10), ("two", 1, 0, 10)]
    assert broker.plan(subscribe=two) == everything
    assert broker.plan(subscribe="two,two-more") == [*everything, ("two-more", 0, 0, 3)]
    assert broker.plan(subscribePattern="two-m.*") == [("two-more", 0, 0, 3)]
    assert broker.plan(subscribePattern="two") == everything
    assert broker.plan(subscribePattern="nothing.*") == []
    assert broker.plan(assign='{"two": [1]}') == [("two", 1, 0, 10)]


def test_where_it_begins_and_ends(broker: Broker, two: str) -> None:
    starting, ending = '{"two": {"0": 4, "1": -2}}', '{"two": {"0": -1, "1": 3}}'
    assert broker.plan(subscribe=two, startingOffsets=starting, endingOffsets=ending) == [
        ("two", 0, 4, 10),
        ("two", 1, 0, 3),
    ]
    at = {
        "startingTimestamp": str(BEGIN_MS + HOUR_MS),
        "endingTimestamp": str(BEGIN_MS + 2 * HOUR_MS + 1),
    }
    assert broker.plan(bounds=EVERYTHING, subscribe=two, **at) == [
        ("two", 0, 1, 3),
        ("two", 1, 1, 3),
    ]
    each = f'{{"two": {{"0": {BEGIN_MS}, "1": {BEGIN_MS + 9 * HOUR_MS}}}}}'
    assert broker.plan(subscribe=two, startingOffsetsByTimestamp=each) == [
        ("two", 0, 0, 10),
        ("two", 1, 9, 10),
    ]
    late = str(BEGIN_MS + 99 * HOUR_MS)
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


def test_splits(broker: Broker, two: str) -> None:
    assert [one[2:] for one in broker.plan(subscribe=two, minPartitions="4")] == [
        (0, 5),
        (5, 10),
        (0, 5),
        (5, 10),
    ]
    assert [one[2:] for one in broker.plan(assign='{"two": [0]}', maxRecordsPerPartition="4")] == [
        (0, 3),
        (3, 6),
        (6, 10),
    ]


def test_pushed_filters_narrow_the_plan(broker: Broker, two: str) -> None:
    assert broker.plan(
        bounds=FilterBounds(partitions=frozenset({1}), start=2, end=5), subscribe=two
    ) == [("two", 1, 2, 5)]
    assert broker.plan(
        bounds=FilterBounds(min_timestamp_ms=BEGIN_MS + 8 * HOUR_MS), subscribe=two
    ) == [
        ("two", 0, 8, 10),
        ("two", 1, 8, 10),
    ]
    assert (
        broker.plan(bounds=FilterBounds(min_timestamp_ms=BEGIN_MS + 99 * HOUR_MS), subscribe=two)
        == []
    )


def test_what_is_not_there(broker: Broker, two: str) -> None:
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


def test_nobody_answers() -> None:
    options = source_options(
        {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders"}, streaming=False
    )
    with pytest.raises(
        KafkaError,
        match=r"localhost:1: connection refused: check the option kafka\.bootstrap\.servers",
    ):
        BatchReader(options).partitions()


# Reading.


def values(broker: Broker, topic: str, start: int, end: int, **given: str) -> list[str]:
    options = source_options(broker.options(subscribe=topic, **given), streaming=False)
    topic_id = broker.ask(lambda client: client.admin.describe_topics([topic]))[0].id
    return _values(read_range(options, OffsetRange(topic, topic_id, 0, start, end)))


def _values(batches: Iterator[pa.RecordBatch]) -> list[str]:
    return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]


def test_a_range_is_read_whatever_its_batches_are(broker: Broker, two: str) -> None:
    assert values(broker, two, 3, 6) == ["0/3", "0/4", "0/5"]
    # A batch is larger than that: brokers give at least one.
    assert len(values(broker, two, 0, 10, **{"kafka.max.partition.fetch.bytes": "1"})) == 10


def test_brokers_that_go_away_are_waited_for(
    broker: Broker, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, calls = Cluster.broker, count()

    async def flaky(cluster: Cluster, node_id: int) -> Connection:
        if next(calls) % 2 == 0:
            raise ConnectionFailed("the broker went away")
        return await reached(cluster, node_id)

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "broker", flaky)
        assert values(broker, two, 0, 10) == [f"0/{index}" for index in range(10)]
        assert next(calls) == 2, "one failed, and one did not"
    with (
        monkeypatch.context() as patch,
        pytest.raises(KafkaError, match="two-0 at offset 4: the broker went away"),
    ):
        patch.setattr(Cluster, "broker", _unreachable)
        values(broker, two, 4, 10, **{"kafka.default.api.timeout.ms": "300"})


async def _unreachable(_cluster: Cluster, _node_id: int) -> Connection:
    raise ConnectionFailed("the broker went away")


def test_what_was_deleted_meanwhile_is_an_error_or_skipped(broker: Broker) -> None:
    broker.create("shrinking", 1)
    broker.delete_records("shrinking", 0, 4)
    with pytest.raises(
        DataLossError,
        match="shrinking-0: offsets 1 to 3 cannot be read: the log starts at offset 4",
    ):
        values(broker, "shrinking", 1, 6)
    assert values(broker, "shrinking", 1, 6, failOnDataLoss="false") == ["0/4", "0/5"]


def test_a_range_that_the_log_does_not_have(broker: Broker, two: str) -> None:
    given = {"kafka.default.api.timeout.ms": "300", "kafka.fetch.max.wait.ms": "50"}
    with pytest.raises(
        DataLossError,
        match="two-0: offsets 10 to 11 cannot be read: the log has ended there",
    ):
        values(broker, two, 8, 12, **given)
    with pytest.raises(KafkaError, match="two-0 at offset 50: two-0 ends at 10, before 50"):
        values(broker, two, 50, 60, **given)


def test_a_topic_that_was_created_again_is_not_read_for_the_old_one(broker: Broker) -> None:
    broker.create("again", 1)
    options = source_options(broker.options(subscribe="again"), streaming=False)
    planned = broker.ask(lambda client: plan(client, options, FilterBounds()))
    broker.ask(lambda client: client.admin.delete_topic("again"))
    broker.create("again", 1)
    with pytest.raises(
        DataLossError,
        match=("again-0: offsets 0 to 9 cannot be read: the topic was deleted and created again"),
    ):
        _values(read_range(options, planned[0]))


# Streams.


def ranges_of(
    reader: StreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[int, int, int]]:
    return [
        (one.value.partition, one.value.start, one.value.end)
        for one in reader.partitions(start, end)
    ]


def test_a_stream_goes_on_from_where_it_was(broker: Broker) -> None:
    broker.create("going", 1)
    reader = broker.stream(subscribe="going", startingOffsets="earliest")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    assert ranges_of(reader, start, first) == [(0, 0, 10)]
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    broker.fill("going", 0, 5)
    broker.ask(lambda client: client.admin.create_partitions("going", 2))
    broker.fill("going", 1, 3)
    second = reader.latestOffset(first, ReadAllAvailable())
    reader.stop()
    again = broker.stream(subscribe="going", startingOffsets="earliest")
    assert ranges_of(again, first, second) == [(0, 10, 15), (1, 0, 3)]
    assert ranges_of(again, second, second) == []
    again.stop()


def test_a_first_batch_that_is_repeated_reads_the_same(broker: Broker) -> None:
    """Spark asks a new reader where to begin, and that is the new end by then."""
    broker.create("first", 1)
    reader = broker.stream(subscribe="first")
    start = reader.initialOffset()
    broker.fill("first", 0, 2)
    assert reader.initialOffset() == start
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.stop()
    broker.fill("first", 0, 5)
    again = broker.stream(subscribe="first")
    assert ranges_of(again, again.initialOffset(), end) == [(0, 10, 12)]
    again.stop()


def test_limits(broker: Broker) -> None:
    broker.create("limited", 1)
    reader = broker.stream(
        subscribe="limited",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="4",
        minOffsetsPerTrigger="3",
    )
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    one = reader.latestOffset(reader.initialOffset(), limit)
    two = reader.latestOffset(one, limit)
    assert ranges_of(reader, one, two) == [(0, 4, 8)]
    assert reader.reportLatestOffset() is not None
    assert (reader.reportLatestOffset() or {})[LAG_KEY] == 2
    assert reader.latestOffset(two, limit) == two, "two are left, and three are wanted"
    assert ranges_of(reader, two, reader.latestOffset(two, ReadAllAvailable())) == [(0, 8, 10)]
    reader.stop()
    patient = broker.stream(
        subscribe="limited",
        startingOffsets="earliest",
        minOffsetsPerTrigger="11",
        maxTriggerDelay="0ms",
    )
    assert patient.getDefaultReadLimit() == ReadMinRows(11)
    start = patient.initialOffset()
    assert ranges_of(patient, start, patient.latestOffset(start, ReadMinRows(11))) == [(0, 0, 10)]
    patient.stop()


def test_a_run_that_ends_by_itself_reads_no_further_than_what_there_was(broker: Broker) -> None:
    broker.create("now", 1)
    reader = broker.stream(subscribe="now", startingOffsets="earliest", minOffsetsPerTrigger="99")
    reader.prepareForTriggerAvailableNow()
    broker.fill("now", 0, 5)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert ranges_of(reader, start, end) == [(0, 0, 10)]
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    reader.stop()


def test_a_stream_notices_what_is_gone(broker: Broker) -> None:
    broker.create("gone", 1)
    strict = broker.stream(subscribe="gone", startingOffsets="earliest")
    lenient = broker.stream(subscribe="gone", startingOffsets="earliest", failOnDataLoss="false")
    everything = ReadAllAvailable()
    start = strict.initialOffset()
    end = strict.latestOffset(start, everything)
    broker.ask(lambda client: client.admin.delete_topic("gone"))
    with pytest.raises(
        DataLossError,
        match="gone-0: offsets from 10 on cannot be read: the partition does not exist",
    ):
        strict.latestOffset(end, everything)
    assert lenient.latestOffset(end, everything) == {}
    broker.create("gone", 1, 3)
    with pytest.raises(DataLossError, match="the topic was deleted and created again"):
        strict.latestOffset(end, everything)
    renewed = lenient.latestOffset(end, everything)
    assert ranges_of(lenient, end, renewed) == [(0, 0, 3)]
    broker.fill("gone", 0, 5)
    broker.delete_records("gone", 0, 6)
    with pytest.raises(DataLossError, match="gone-0: offsets 3 to 5 cannot be read"):
        strict.latestOffset(renewed, everything)
    assert ranges_of(lenient, renewed, lenient.latestOffset(renewed, everything)) == [(0, 6, 8)]
    strict.stop()
    lenient.stop()


def test_a_stream_of_nothing_says_so(broker: Broker) -> None:
    reader = broker.stream(subscribe="nowhere")
    with pytest.raises(KafkaError, match="topic nowhere does not exist"):
        reader.initialOffset()
    reader.stop()
