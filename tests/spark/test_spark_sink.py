"""Writing: columns, partitioning as in Kafka's clients, retries, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import penstock
from penstock.client.connection import Connection
from penstock.client.errors import ConnectionFailed
from penstock.errors import KafkaError
from penstock.protocol.messages.produce import ProduceRequest
from penstock.spark.options import OptionError, sink_options
from penstock.spark.sink.writer import check_columns, write
from tests.spark.live import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
KEYS = [f"key-{number}" for number in range(200)] + ["", "ä", "x" * 1000]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({"num.partitions": "4"}) as cluster:
        yield cluster.bootstrap_servers


def create(
    servers: str, topic: str, partitions: int = 4, config: dict[str, str] | None = None
) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, config=config or {})])[topic].result()
    return topic


def consume(servers: str, topic: str, partitions: int = 4) -> list[Message]:
    """Consume the whole topic, sorted by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    messages: list[Message] = []
    ended = 0
    while ended < partitions:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            messages.append(message)
        else:
            ended += 1
    consumer.close()
    return sorted(messages, key=lambda message: (message.partition(), message.offset()))


def rows(**columns: pa.Array) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch(list(columns.values()), names=list(columns))])


def write_rows(servers: str, batches: Iterator[pa.RecordBatch], **options: str) -> int:
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    return write(sink_options({"kafka.bootstrap.servers": servers, **dotted}), batches).rows


@pytest.mark.parametrize("partitions", [4, 7])
def test_keys_are_partitioned_as_by_kafkas_clients(servers: str, partitions: int) -> None:
    theirs, ours = (
        create(servers, f"{name}-{partitions}", partitions) for name in ("theirs", "ours")
    )
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for key in KEYS:
        producer.produce(theirs, key=key, value=key)
    producer.flush()
    write_rows(servers, rows(key=pa.array(KEYS), value=pa.array(KEYS)), topic=ours)
    expected, written = (
        {(message.key(), message.partition()) for message in consume(servers, topic, partitions)}
        for topic in (theirs, ours)
    )
    assert written == expected
    assert len(written) == len(KEYS)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_with_many_batches(servers: str, codec: str) -> None:
    topic = create(servers, f"codec-{codec}", 1)
    values = [f"value {number}" for number in range(5000)]
    batches = iter([batch for _ in range(3) for batch in rows(value=pa.array(values))])
    assert (
        write_rows(
            servers, batches, topic=topic, kafka__compression__type=codec, kafka__batch__size="5000"
        )
        == 15000
    )
    assert [message.value() for message in consume(servers, topic, 1)] == [
        value.encode() for value in values * 3
    ]


def test_all_columns(servers: str) -> None:
    first, second = create(servers, "columns-first"), create(servers, "columns-second")
    written = rows(
        value=pa.array([b"a", None, b"c", b"d"], pa.binary()),
        key=pa.array([None, b"k", None, None], pa.binary()),
        headers=pa.array(
            [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, [], None], HEADERS
        ),
        topic=pa.array([first, second, first, first]),
        partition=pa.array([3, 2, 3, None], pa.int32()),
        other=pa.array([1, 2, 3, 4]),
    )
    assert write_rows(servers, written) == 4
    messages = consume(servers, first)
    assert [
        (message.partition(), message.value(), message.headers())
        for message in messages
        if message.value() != b"d"
    ] == [
        (3, b"a", [("h", b"1"), ("h", None)]),
        (3, b"c", None),
    ]
    assert len(messages) == 3
    (tombstone,) = consume(servers, second)
    assert (tombstone.partition(), tombstone.key(), tombstone.value()) == (2, b"k", None)


def test_rows_without_a_key_go_to_one_partition(servers: str) -> None:
    topic = create(servers, "together")
    write_rows(servers, rows(value=pa.array(["a", "b", "c"])), topic=topic)
    assert len({message.partition() for message in consume(servers, topic)}) == 1


def test_minimal_buffer_memory(servers: str) -> None:
    topic = create(servers, "little")
    batches = iter(
        [batch for _ in range(20) for batch in rows(value=pa.array([b"x" * 1000] * 100))]
    )
    assert (
        write_rows(
            servers, batches, topic=topic, kafka__buffer__memory="1", kafka__batch__size="20000"
        )
        == 2000
    )
    assert len(consume(servers, topic)) == 2000


def test_retry_after_a_lost_response_writes_no_duplicate(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(servers, "lost-responses")
    call, calls = Connection.call, count()

    async def lose_response(
        connection: Connection, request: object, response: type[Any], **options: Any
    ) -> Any:
        result = await call(connection, request, response, **options)
        if isinstance(request, ProduceRequest) and next(calls) % 2 == 0:
            raise ConnectionFailed("connection lost")
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "call", lose_response)
        write_rows(
            servers,
            rows(key=pa.array(KEYS), value=pa.array(KEYS)),
            topic=topic,
            kafka__batch__size="1000",
        )
    assert next(calls) > 8
    assert sorted(message.value() or b"" for message in consume(servers, topic)) == sorted(
        key.encode() for key in KEYS
    )


def test_task_without_rows_does_not_connect() -> None:
    assert write_rows("localhost:1", iter([]), topic="any") == 0


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            {"value": pa.array(["a", "b"]), "topic": pa.array(["errors", None])},
            {},
            "column topic is null in some rows",
        ),
        (
            {"value": pa.array(["a"]), "partition": pa.array([4], pa.int32())},
            {"topic": "errors"},
            "partition contains 4, but topic errors has partitions 0 to 3",
        ),
        (
            {"value": pa.array(["a"]), "partition": pa.array([-1], pa.int32())},
            {"topic": "errors"},
            "partition contains -1",
        ),
        (
            {"value": pa.array(["a" * 2_000_000])},
            {"topic": "errors"},
            "a value of 2000000 bytes is larger",
        ),
        (
            {"value": pa.array(["a"])},
            {"topic": "no/name"},
            "is not a valid topic name: create it, or correct the option",
        ),
    ],
)
def test_invalid_rows(
    servers: str, columns: dict[str, pa.Array], options: dict[str, str], message: str
) -> None:
    with pytest.raises(KafkaError) as raised:
        write_rows(servers, rows(**columns), **options)
    assert message in str(raised.value)


def test_record_larger_than_max_message_bytes(servers: str) -> None:
    topic = create(servers, "narrow", config={"max.message.bytes": "1000"})
    with pytest.raises(KafkaError, match=r"narrow-\d: .*raise max.message.bytes of the topic"):
        write_rows(
            servers,
            rows(value=pa.array([b"x" * 2000])),
            topic=topic,
            kafka__compression__type="none",
        )


def test_unreachable_broker_is_an_error() -> None:
    with pytest.raises(KafkaError, match=r"check the option kafka\.bootstrap\.servers"):
        write_rows(
            "localhost:1",
            rows(value=pa.array(["a"])),
            topic="any",
            kafka__default__api__timeout__ms="500",
        )


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"key": "string"}, "out", "no column value among key"),
        ({"value": "string"}, None, "set the option topic, or add a column topic"),
        ({"value": "int"}, "out", "the column value has type int: cast it to string or binary"),
        (
            {"value": "binary", "headers": "map<string,string>"},
            "out",
            "array<struct<key:string,value:binary>>",
        ),
        ({"value": "binary", "partition": "bigint"}, "out", "cast it to int"),
    ],
)
def test_invalid_columns(columns: dict[str, str], topic: str | None, message: str) -> None:
    with pytest.raises(OptionError) as raised:
        check_columns(columns, topic)
    assert message in str(raised.value)


def test_valid_columns() -> None:
    check_columns(
        {"value": "string collate UTF8_LCASE", "topic": "string", "other": "map<int,int>"}, None
    )


# With Spark.


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


def test_batch_and_streaming_writes(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    first, second = create(servers, "batch"), create(servers, "streamed")
    options = {"kafka.bootstrap.servers": servers}
    frame = spark.range(1000).selectExpr(
        "cast(id % 10 as string) as key", "cast(id as string) as value"
    )
    frame.write.format("penstock").options(**options, topic=first).mode("append").save()
    stream = (
        spark.readStream.format("penstock")
        .options(**options, subscribe=first, startingOffsets="earliest")
        .load()
    )
    to_second = stream.selectExpr(
        "key", "value", f"'{second}' as topic", "partition"
    ).writeStream.format("penstock")
    query = (
        to_second.options(**options, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    written = {
        (message.key(), message.value(), message.partition()) for message in consume(servers, first)
    }
    assert written == {
        (message.key(), message.value(), message.partition())
        for message in consume(servers, second)
    }
    assert len(written) == 1000
    assert len({(key, partition) for key, _value, partition in written}) == 10


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id", {"topic": "out"}, "there is no column value among id"),
        ("cast(id as string) as value", {}, "set the option topic"),
        (
            "cast(id as string) as value",
            {"topic": "out", "kafka.acks": "0"},
            "must be one of all, -1, 1",
        ),
    ],
)
def test_spark_reports_the_error(
    spark: SparkSession, servers: str, columns: str, options: dict[str, Any], message: str
) -> None:
    writer = (
        spark.range(1)
        .selectExpr(columns)
        .write.format("penstock")
        .option("kafka.bootstrap.servers", servers)
        .options(**options)
    )
    with pytest.raises(Exception, match=message):
        writer.mode("append").save()
