"""Penstock's client against a real Apache Kafka 4.3.0. Run by `make test-java`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from typer.testing import CliRunner

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.client.consumer.completed_fetch import ConsumerRecord
from penstock.client.consumer.consumer import BEGINNING, END, Consumer, OffsetSpec
from penstock.client.offsets import EARLIEST, LATEST, IsolationLevel
from penstock.config.setting import ConfigSource
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.records.compression import Codec
from penstock.world.real import run
from tests.cli.test_cli_topics_produce_consume import application
from tests.java.kafka_node import KafkaNode
from tests.java.kafka_tools import TOPICS, Tools

pytestmark = pytest.mark.java

T = TypeVar("T")
Play = Callable[[Callable[[Client], Coroutine[Any, Any, T]]], T]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    node = KafkaNode(
        tmp_path_factory.mktemp("client-kafka"),
        {"num.partitions": "1", "message.max.bytes": "200000"},
    )
    node.start()
    try:
        yield node
    finally:
        node.kill()


@pytest.fixture
def play(kafka: KafkaNode) -> Play[Any]:
    def play(scenario: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        async def main(world: Any) -> T:
            async with asyncio.timeout(60), Client(world, kafka.bootstrap) as client:
                return await scenario(client)

        return run(main)

    return play


async def read_all(consumer: Consumer) -> list[ConsumerRecord]:
    ends = await consumer.end_offsets()
    records: list[ConsumerRecord] = []
    while any(consumer.positions[partition] < end for partition, end in ends.items()):
        records += await consumer.poll()
    return records


async def eventually(ask: Callable[[], Coroutine[Any, Any, T]], expected: T) -> None:
    """Wait until Kafka's broker has applied metadata that the controller has already committed."""
    while await ask() != expected:
        await asyncio.sleep(0.02)


async def partition_count(client: Client, name: str) -> int:
    return len((await client.admin.describe_topics([name]))[0].partitions)


async def own_settings(client: Client, name: str) -> list[tuple[str, str]]:
    entries = await client.admin.describe_configs(ConfigResourceType.TOPIC, name)
    return [
        (entry.name, str(entry.value))
        for entry in entries
        if entry.source == ConfigSource.DYNAMIC_TOPIC
    ]


async def is_listed(client: Client, name: str) -> bool:
    return name in await client.admin.list_topics()


def test_topics_from_creation_to_deletion(play: Play[None]) -> None:
    async def scenario(client: Client) -> None:
        admin = client.admin
        topic_id = await admin.create_topic(
            "life", partitions=2, replication_factor=1, configs={"retention.ms": "1000000"}
        )
        with pytest.raises(KafkaError, match="already exists") as exists:
            await admin.create_topic("life")
        assert exists.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert "life" in await admin.list_topics()
        (topic,) = await admin.describe_topics(["life"])
        assert (topic.id, topic.internal, len(topic.partitions)) == (topic_id, False, 2)
        assert [(info.leader, info.replicas, info.isr) for info in topic.partitions] == [
            (1, (1,), (1,))
        ] * 2
        await admin.create_partitions("life", 5)
        await eventually(lambda: partition_count(client, "life"), 5)
        await admin.alter_configs(
            ConfigResourceType.TOPIC,
            "life",
            put={"cleanup.policy": "compact"},
            delete=["retention.ms"],
        )
        await eventually(lambda: own_settings(client, "life"), [("cleanup.policy", "compact")])
        with pytest.raises(KafkaError, match="Unable to replicate") as factor:
            await admin.create_topic("wide", replication_factor=3)
        assert factor.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        await admin.delete_topic("life")
        await eventually(lambda: is_listed(client, "life"), False)
        with pytest.raises(KafkaError, match="topic life does not exist"):
            await admin.describe_topics(["life"])

    play(scenario)


def test_the_cluster_and_the_configs_of_its_brokers(play: Play[None], kafka: KafkaNode) -> None:
    async def scenario(client: Client) -> None:
        cluster = await client.admin.describe_cluster()
        assert [f"{broker.host}:{broker.port}" for broker in cluster.brokers] == [kafka.bootstrap]
        settings = {
            entry.name: entry
            for entry in await client.admin.describe_configs(ConfigResourceType.BROKER, "1")
        }
        assert settings["message.max.bytes"].value == "200000"
        assert settings["message.max.bytes"].source == ConfigSource.STATIC_BROKER

    play(scenario)


@pytest.mark.parametrize("codec", list(Codec))
def test_produced_records_are_consumed(play: Play[None], codec: Codec) -> None:
    async def scenario(client: Client) -> None:
        name = f"round-{codec.name.lower()}"
        await client.admin.create_topic(name, partitions=3)
        async with client.producer(codec=codec, batch_bytes=2000) as producer:
            futures = [
                await producer.send(
                    name,
                    f"value {number}".encode(),
                    key=f"{number % 7}".encode(),
                    headers=(("n", b"%d" % number),),
                )
                for number in range(1000)
            ]
        delivered = [future.result() for future in futures]
        async with client.consumer() as consumer:
            await consumer.assign({TopicPartition(name, index): BEGINNING for index in range(3)})
            records = await read_all(consumer)
        read = {(record.partition, record.offset): record.value for record in records}
        assert read == {
            (metadata.partition, metadata.offset): f"value {number}".encode()
            for number, metadata in enumerate(delivered)
        }
        assert all(
            record.headers == (("n", (record.value or b"").split()[1]),) for record in records
        )
        for index in range(3):
            numbers = [
                int((record.value or b"").split()[1])
                for record in records
                if record.partition == index
            ]
            assert all(before < after for before, after in pairwise(numbers))

    play(scenario)


def test_keys_go_to_the_partitions_of_librdkafkas_murmur2(
    play: Play[None], kafka: KafkaNode
) -> None:
    async def scenario(client: Client) -> None:
        await client.admin.create_topic("keyed", partitions=7)
        keys = [bytes(range(length)) for length in range(1, 40)]
        theirs = LibrdkafkaProducer(
            {"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"}
        )
        for key in keys:
            theirs.produce("keyed", b"librdkafka", key=key)
        theirs.flush()
        async with client.producer() as producer:
            ours = [await producer.send("keyed", b"penstock", key=key) for key in keys]
        async with client.consumer() as consumer:
            await consumer.assign({TopicPartition("keyed", index): BEGINNING for index in range(7)})
            records = await read_all(consumer)
        placed = {
            record.key: record.partition for record in records if record.value == b"librdkafka"
        }
        assert placed == {
            key: future.result().partition for key, future in zip(keys, ours, strict=True)
        }

    play(scenario)


def test_positions_by_offset_end_and_time(play: Play[None]) -> None:
    async def scenario(client: Client) -> None:
        await client.admin.create_topic("times", configs={"message.timestamp.type": "CreateTime"})
        partition = TopicPartition("times", 0)
        async with client.producer(linger_s=0.0) as producer:
            for number in range(10):
                await (
                    await producer.send(
                        "times", b"%d" % number, timestamp=1_700_000_000_000 + number * 1000
                    )
                )
        async with client.consumer() as consumer:

            async def first(start: Any) -> ConsumerRecord:
                await consumer.assign({partition: start})
                return await anext(aiter(consumer))

            assert (await first(7)).value == b"7"
            assert (await first(OffsetSpec(1_700_000_002_500))).value == b"3"
            await consumer.assign({partition: OffsetSpec(1_900_000_000_000)})
            assert consumer.positions == {partition: 10}
            await consumer.assign({partition: END})
            assert consumer.positions == {partition: 10}
            assert await client.admin.delete_records({partition: 4}) == {partition: 4}
            assert (await client.admin.list_offsets({partition: EARLIEST}))[partition].offset == 4
            assert (await client.admin.list_offsets({partition: LATEST}))[partition].offset == 10
            with pytest.raises(KafkaError, match="times-0 has no offset 2") as gone:
                await first(2)
            assert gone.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    play(scenario)


def test_read_committed_skips_aborted_records(play: Play[None], kafka: KafkaNode) -> None:
    async def scenario(client: Client) -> None:
        await client.admin.create_topic("transactions")
        partition = TopicPartition("transactions", 0)
        theirs = LibrdkafkaProducer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
        theirs.init_transactions()
        for number in range(6):
            theirs.begin_transaction()
            theirs.produce("transactions", b"%d" % number)
            theirs.flush()
            async with client.producer() as producer:
                await producer.send("transactions", b"plain")
            theirs.commit_transaction() if number % 2 else theirs.abort_transaction()

        async def values(isolation: IsolationLevel) -> list[bytes]:
            async with client.consumer(isolation=isolation) as consumer:
                await consumer.assign({partition: BEGINNING})
                return [record.value or b"" for record in await read_all(consumer)]

        plain = [b"plain"] * 6
        assert sorted(await values(IsolationLevel.READ_COMMITTED)) == [b"1", b"3", b"5", *plain]
        assert sorted(await values(IsolationLevel.READ_UNCOMMITTED)) == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
            b"5",
            *plain,
        ]

    play(scenario)


def test_a_refused_record_does_not_affect_the_others(play: Play[None]) -> None:
    async def scenario(client: Client) -> None:
        await client.admin.create_topic("large")
        async with client.producer(batch_bytes=10_000) as producer:
            futures = [
                await producer.send("large", bytes(300_000 if number == 50 else 900))
                for number in range(100)
            ]
        errors = [future.exception() for future in futures]
        assert [index for index, error in enumerate(errors) if error] == [50]
        assert isinstance(errors[50], KafkaError)
        assert errors[50].code is ErrorCode.MESSAGE_TOO_LARGE
        assert [future.result().offset for future in futures if not future.exception()] == list(
            range(99)
        )

    play(scenario)


@pytest.mark.parametrize("acks", [0, 1])
def test_records_are_written_with_acks_0_and_1(play: Play[None], acks: int) -> None:
    async def scenario(client: Client) -> None:
        name = f"acks-{acks}"
        await client.admin.create_topic(name)
        async with client.producer(acks=acks) as producer:
            future = await producer.send(name, b"hello")
        assert future.result().offset == (0 if acks else -1)
        async with client.consumer() as consumer:
            await consumer.assign({TopicPartition(name, 0): BEGINNING})
            assert (await anext(aiter(consumer))).value == b"hello"

    play(scenario)


def test_producing_creates_the_topic(play: Play[None]) -> None:
    async def scenario(client: Client) -> None:
        async with client.producer() as producer:
            future = await producer.send("by-itself", b"hello")
        assert future.result().offset == 0

    play(scenario)


def command(kafka: KafkaNode, *arguments: str, stdin: str | None = None) -> str:
    result = CliRunner().invoke(
        application(), [*arguments, "--bootstrap-server", kafka.bootstrap], input=stdin
    )
    return result.stdout if result.exit_code == 0 else f"{result.exit_code}: {result.stderr}"


def test_the_penstock_commands_work_with_apache_kafka(kafka: KafkaNode) -> None:
    assert (
        command(kafka, "topics", "create", "cli", "--partitions", "2", "-c", "retention.ms=100000")
        == "Created topic cli.\n"
    )
    assert "TOPIC_ALREADY_EXISTS" in command(kafka, "topics", "create", "cli")
    assert "INVALID_CONFIG" in command(
        kafka, "topics", "create", "other", "-c", "retention.ms=soon"
    )
    assert command(
        kafka,
        "topics",
        "alter",
        "cli",
        "--partitions",
        "3",
        "-c",
        "segment.ms=100000",
        "--delete-config",
        "retention.ms",
    )
    assert "cli" in command(kafka, "topics", "list").splitlines()
    while "PartitionCount: 3" not in (described := command(kafka, "topics", "describe", "cli")):
        pass
    assert described == Tools(kafka.bootstrap)(TOPICS, "--describe", "--topic", "cli")
    assert len(re.findall(r"(?m)^Topic: ", command(kafka, "topics", "describe"))) == len(
        command(kafka, "topics", "list").splitlines()
    )
    assert command(kafka, "produce", "cli", "--key-separator", "=", stdin="a=1\nb=2\n") == ""
    assert sorted(
        command(kafka, "consume", "cli", "--from-beginning", "--exit-at-end").split()
    ) == ["1", "2"]
    assert command(kafka, "topics", "delete", "cli", "--yes") == "Deleted topic cli.\n"
    assert command(kafka, "topics", "delete", "cli", "--yes").startswith(
        "1: penstock topics delete: UNKNOWN_TOPIC_OR_PARTITION: "
    )


def test_a_broker_restart_neither_loses_nor_duplicates_records(
    play: Play[None], kafka: KafkaNode
) -> None:
    async def scenario(client: Client) -> None:
        await client.admin.create_topic("restarted")
        async with client.producer(batch_bytes=200, linger_s=0.0) as producer:
            futures = []
            for number in range(400):
                futures.append(await producer.send("restarted", b"%d" % number))
                if number == 200:
                    await futures[100]
                    restart = asyncio.create_task(asyncio.to_thread(restart_kafka, kafka))
                    await asyncio.sleep(0)
            await restart
        assert [future.result().partition for future in futures] == [0] * 400
        async with client.consumer() as consumer:
            await consumer.assign({TopicPartition("restarted", 0): BEGINNING})
            assert [record.value for record in await read_all(consumer)] == [
                b"%d" % number for number in range(400)
            ]

    play(scenario)


def restart_kafka(kafka: KafkaNode) -> None:
    kafka.kill()
    kafka.start()
