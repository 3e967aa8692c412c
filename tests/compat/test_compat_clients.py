"""Unmodified clients create a topic, produce, consume assigned partitions, and seek by offset and
by time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.compat.aiokafka_client import AiokafkaClient
from tests.compat.client_under_test import (
    CODECS,
    ClientUnderTest,
    Got,
    Sent,
    compressible,
    fields,
    in_order,
    new_topic,
)
from tests.compat.confluent_client import ConfluentClient
from tests.compat.kafka_python_client import KafkaPythonClient
from tests.compat.kcat_client import KCAT, KcatClient

CLIENTS: dict[str, Callable[[str], ClientUnderTest]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "aiokafka": AiokafkaClient,
}
if KCAT:
    CLIENTS["kcat"] = KcatClient

Note = Callable[[str, object], None]
SIZES = (1, 2, 100, 1_000, 16_384, 100_000, 1_000_000)
STARTED_MS = 1_700_000_000_000


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap_servers: str) -> ClientUnderTest:
    return CLIENTS[request.param](bootstrap_servers)


@pytest.fixture
def topic(client: ClientUnderTest) -> str:
    name = new_topic("one")
    client.create_topic(name, 1)
    return name


def numbered(count: int, partition: int = 0) -> list[Sent]:
    return [
        Sent(b"%d" % number, timestamp_ms=STARTED_MS + 1_000 * number, partition=partition)
        for number in range(count)
    ]


def test_the_tested_clients_are_reported(record_property: Note) -> None:
    if not KCAT:
        record_property("note", "kcat is not on the PATH: tests/compat did not run it")
    for name in CLIENTS:
        note = CLIENTS[name]("").abilities.note
        if note:
            record_property("note", note)
    assert {"confluent-kafka", "kafka-python", "aiokafka"} <= set(CLIENTS)


def test_a_created_topic_is_listed(client: ClientUnderTest) -> None:
    partitions = 3 if client.abilities.admin else 1
    name = new_topic("created")
    client.create_topic(name, partitions)
    assert client.topics()[name] == partitions


def test_a_topic_is_created_once(client: ClientUnderTest, topic: str) -> None:
    if not client.abilities.admin:
        client.create_topic(topic, 1)  # kcat only requests metadata of the existing topic.
        assert client.topics()[topic] == 1
        return
    with pytest.raises(Exception, match=r"(?i)already.?exists"):
        client.create_topic(topic, 1)


def test_keys_values_and_headers_are_preserved(client: ClientUnderTest, topic: str) -> None:
    records = [
        Sent(b"no key"),
        Sent(b"with a key", key=b"key"),
        Sent(b"with a header", key=b"key", headers=(("name", b"value"),)),
        Sent(b"with headers", headers=(("name", b"one"), ("name", b"two"), ("other", b"three"))),
    ]
    client.produce(topic, records)
    assert fields(in_order(client.read_all(topic, 1, len(records)))) == [
        (record.key, record.value, record.headers) for record in records
    ]


def test_null_and_empty_values_are_preserved(
    bootstrap_servers: str, client: ClientUnderTest, topic: str
) -> None:
    """kcat cannot send empty values; another client writes the records that it reads."""
    writer = client if client.abilities.admin else ConfluentClient(bootstrap_servers)
    writer.produce(topic, [Sent(None, key=b"tombstone"), Sent(b""), Sent(b"\x00\xff\n,= ")])
    assert fields(client.read_all(topic, 1, 3)) == [
        (b"tombstone", None, ()),
        (None, b"", ()),
        (None, b"\x00\xff\n,= ", ()),
    ]


@pytest.mark.parametrize(
    ("name", "codec"),
    [(name, codec) for name in CLIENTS for codec in CLIENTS[name]("").abilities.codecs],
)
def test_every_codec_is_preserved(bootstrap_servers: str, name: str, codec: str) -> None:
    client, topic = CLIENTS[name](bootstrap_servers), new_topic(codec)
    client.create_topic(topic, 1)
    values = [compressible(1_000, number) for number in range(100)]
    client.produce(topic, [Sent(value) for value in values], codec=codec)
    assert [record.value for record in client.read_all(topic, 1, len(values))] == values


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_values_from_1_byte_to_1_megabyte_are_preserved(
    client: ClientUnderTest, topic: str, codec: str
) -> None:
    values = [compressible(size, size) for size in SIZES]
    client.produce(topic, [Sent(value) for value in values], codec=codec)
    assert [record.value for record in client.read_all(topic, 1, len(values))] == values


def test_idempotent_producers_keep_order(client: ClientUnderTest, topic: str) -> None:
    values = [b"%d" % number for number in range(1_000)]
    acknowledged = client.produce(topic, [Sent(value) for value in values], idempotent=True)
    found = client.read_all(topic, 1, len(values))
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(1_000))
    assert acknowledged in ([], list(range(1_000)))


def test_partitions_are_read_from_the_beginning(client: ClientUnderTest) -> None:
    partitions = 3 if client.abilities.admin else 1
    name = new_topic("partitions")
    client.create_topic(name, partitions)
    records = [record for partition in range(partitions) for record in numbered(50, partition)]
    client.produce(name, records)
    found = in_order(client.read_all(name, partitions, len(records)))
    assert [(record.partition, record.offset, record.value) for record in found] == [
        (record.partition, number % 50, record.value) for number, record in enumerate(records)
    ]
    if client.abilities.timestamps:
        assert [record.timestamp_ms for record in found] == [
            record.timestamp_ms for record in records
        ]


def test_seek_by_offset(client: ClientUnderTest, topic: str) -> None:
    records = numbered(100)
    client.produce(topic, records)
    for offset in (0, 1, 57, 99):
        found = client.read_from(topic, 0, offset, 100 - offset)
        assert [(record.offset, record.value) for record in found] == [
            (n, records[n].value) for n in range(offset, 100)
        ]


def test_seek_by_time(bootstrap_servers: str, client: ClientUnderTest, topic: str) -> None:
    writer = client if client.abilities.timestamps else ConfluentClient(bootstrap_servers)
    records = numbered(100)
    writer.produce(topic, records)
    assert client.offset_at(topic, 0, STARTED_MS - 1) == 0
    assert client.offset_at(topic, 0, STARTED_MS + 40_000) == 40
    assert client.offset_at(topic, 0, STARTED_MS + 40_001) == 41
    # kcat and librdkafka may return the log end for a time after all records.
    assert client.offset_at(topic, 0, STARTED_MS + 100_000) in (None, 100)
    offset = client.offset_at(topic, 0, STARTED_MS + 98_500)
    assert offset == 99
    assert client.read_from(topic, 0, offset, 1) == [
        Got(0, 99, STARTED_MS + 99_000, None, b"99", ())
    ]


@pytest.mark.parametrize("codec", ["none", *CODECS])
def test_every_client_reads_the_records_of_every_other(bootstrap_servers: str, codec: str) -> None:
    """Snappy has two framings: librdkafka writes one, the other clients the other, and all read
    both."""
    clients = {name: make(bootstrap_servers) for name, make in CLIENTS.items()}
    able = {
        name: client
        for name, client in clients.items()
        if codec in ("none", *client.abilities.codecs)
    }
    topic = new_topic("all")
    clients["confluent-kafka"].create_topic(topic, 1)
    values: list[bytes | None] = []
    for writer, client in able.items():
        some = [f"{writer} {number}".encode() * 10 for number in range(20)]
        client.produce(topic, [Sent(value) for value in some], codec=codec)
        values += some
    for client in able.values():
        assert [record.value for record in client.read_all(topic, 1, len(values))] == values
