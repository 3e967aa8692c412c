"""Apache Kafka's command line tools against `penstock up`.

Knows only Penstock's address, and the directory that kafka-log-dirs reports. Run by `make
test-java`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer

from penstock.records.batch import batches
from tests.e2e.penstock_process import PenstockProcess
from tests.java.kafka_tools import (
    API_VERSIONS,
    CLUSTER,
    CONFIGS,
    CONSUMER,
    DELETE_RECORDS,
    PERFORMANCE,
    PRODUCER,
    TOPICS,
    Ended,
    Tools,
)

pytestmark = pytest.mark.java

PERFORMANCE_RECORDS = 20_000
WHAT_CLIENTS_USE = {
    "Produce": (3, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "ApiVersions": (0, 4),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "AddPartitionsToTxn": (0, 5),
    "AddOffsetsToTxn": (0, 4),
    "EndTxn": (0, 5),
    "TxnOffsetCommit": (0, 5),
    "DescribeConfigs": (1, 4),
    "IncrementalAlterConfigs": (0, 1),
    "DescribeLogDirs": (1, 5),
    "CreatePartitions": (0, 3),
    "DescribeCluster": (0, 2),
    "DescribeTopicPartitions": (0, 0),
}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    broker = PenstockProcess(tmp_path_factory.mktemp("commands"))
    try:
        broker.start()
        yield Tools(broker.bootstrap)
        broker.stop()
    finally:
        broker.kill()


def described(tools: Tools, topic: str) -> tuple[str, list[str]]:
    heading, *partitions = tools(TOPICS, "--describe", "--topic", topic).splitlines()
    return re.sub(r"TopicId: \S{22}\t", "", heading), partitions


def described_partitions(topic: str, count: int) -> list[str]:
    return [
        (
            f"\tTopic: {topic}\tPartition: {number}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: "
            "\tLastKnownElr: "
        )
        for number in range(count)
    ]


def test_topics_from_creation_to_deletion(tools: Tools) -> None:
    tools.create(
        "life",
        "--partitions",
        "3",
        "--config",
        "retention.ms=100000",
        "--config",
        "cleanup.policy=compact",
    )
    assert "life" in tools(TOPICS, "--list").split()
    configs = "Configs: min.insync.replicas=1,cleanup.policy=compact,retention.ms=100000"
    heading = "Topic: life\tPartitionCount: {}\tReplicationFactor: 1\t" + configs
    assert described(tools, "life") == (heading.format(3), described_partitions("life", 3))
    tools(TOPICS, "--alter", "--topic", "life", "--partitions", "5")
    assert described(tools, "life") == (heading.format(5), described_partitions("life", 5))
    tools(TOPICS, "--delete", "--topic", "life")
    assert "life" not in tools(TOPICS, "--list").split()


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (
            ["--create", "--topic", "four", "--replication-factor", "4"],
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 "
            "cannot be reached because only 1 broker(s) "
            "are registered or some brokers have all their log directories cordoned.",
        ),
        (["--create", "--topic", "there"], "Topic 'there' already exists."),
        (
            ["--create", "--topic", "odd", "--config", "no.such=1"],
            "Unknown topic config name: no.such",
        ),
        (
            ["--alter", "--topic", "there", "--partitions", "1"],
            "The topic there currently has 2 partition(s); 1 would not be an increase.",
        ),
    ],
    ids=["factor-4", "exists", "unknown-config", "fewer-partitions"],
)
def test_invalid_topics_are_refused_with_kafkas_errors(
    tools: Tools, arguments: list[str], refusal: str
) -> None:
    tools(TOPICS, "--create", "--if-not-exists", "--topic", "there", "--partitions", "2")
    before = tools(TOPICS, "--list")
    ended = tools.run(TOPICS, *arguments)
    assert ended.code == 1
    assert ended.stdout.splitlines()[0] == f"Error while executing topic command : {refusal}"
    assert tools(TOPICS, "--list") == before
    assert described(tools, "there")[1] == described_partitions("there", 2)


def test_configs_of_a_topic(tools: Tools) -> None:
    tools.create("set")
    topic = ["--entity-type", "topics", "--entity-name", "set"]
    assert tools.settings(*topic) == []
    changed = "Completed updating config for topic set.\n"
    assert (
        tools(
            CONFIGS,
            "--alter",
            *topic,
            "--add-config",
            "retention.ms=200000,cleanup.policy=[compact,delete]",
        )
        == changed
    )
    policy = (
        "cleanup.policy=compact,delete sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}"
    )
    retention = (
        "retention.ms=200000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=200000}"
    )
    assert tools.settings(*topic) == [policy, retention]
    refused = tools.run(CONFIGS, "--alter", *topic, "--add-config", "retention.ms=abc")
    assert refused.code == 1
    assert (
        "InvalidConfigurationException: Invalid value abc for configuration retention.ms: Not a "
        "number of type LONG"
    ) in refused.stderr
    assert tools(CONFIGS, "--alter", *topic, "--delete-config", "retention.ms") == changed
    assert tools.settings(*topic) == [policy]


def test_configs_of_the_broker(tools: Tools) -> None:
    tools.create("heir")
    broker = ["--entity-type", "brokers", "--entity-name", "1"]
    changed = "Completed updating config for broker 1.\n"
    assert tools.settings(*broker) == []
    assert (
        tools(CONFIGS, "--alter", *broker, "--add-config", "message.max.bytes=2000000") == changed
    )
    synonyms = (
        "sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:message.max.bytes=2000000, "
        "DEFAULT_CONFIG:message.max.bytes=1048588}"
    )
    assert tools.settings(*broker) == [f"message.max.bytes=2000000 {synonyms}"]
    assert f"max.message.bytes=2000000 {synonyms}" in tools.settings("--topic", "heir", "--all")
    refused = tools.run(CONFIGS, "--alter", *broker, "--add-config", "log.dirs=elsewhere")
    assert refused.code == 1
    assert (
        "InvalidRequestException: Cannot update these configs dynamically: Set(log.dirs)"
        in refused.stderr
    )
    assert tools(CONFIGS, "--alter", *broker, "--delete-config", "message.max.bytes") == changed
    assert tools.settings(*broker) == []


def test_configs_of_a_group(tools: Tools) -> None:
    group = ["--entity-type", "groups", "--entity-name", "set"]
    name = "consumer.session.timeout.ms"
    changed = "Completed updating config for group set.\n"
    assert (
        tools(CONFIGS, "--describe", *group)
        == "The group 'set' doesn't exist and doesn't have dynamic config.\n"
    )
    assert tools(CONFIGS, "--alter", *group, "--add-config", f"{name}=50000") == changed
    synonyms = f"synonyms={{DYNAMIC_GROUP_CONFIG:{name}=50000, DEFAULT_CONFIG:group.{name}=45000}}"
    assert tools.settings(*group) == [f"{name}=50000 sensitive=false {synonyms}"]
    refused = tools.run(CONFIGS, "--alter", *group, "--add-config", f"{name}=1")
    assert refused.code == 1
    assert (
        f"{name} must be greater than or equal to group.consumer.min.session.timeout.ms"
        in refused.stderr
    )
    assert tools(CONFIGS, "--alter", *group, "--delete-config", name) == changed
    assert tools(CONFIGS, "--describe", "--entity-type", "groups") == ""


def test_the_console_producer_and_consumer_exchange_lines(tools: Tools) -> None:
    tools.create("lines")
    tools(PRODUCER, "--topic", "lines", stdin="one\ntwo\ndreißig\n")
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    tools(PRODUCER, "--topic", "lines", *keyed, stdin="k1:v1\nk2:v2\n")
    assert tools.consume("lines", 5) == ["one", "two", "dreißig", "v1", "v2"]
    assert tools.consume("lines", 2) == ["one", "two"]
    shown = ["--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"]
    assert tools.consume("lines", 2, *shown, since="3") == ["Offset:3\tk1\tv1", "Offset:4\tk2\tv2"]


def test_every_codec_of_the_console_producer(tools: Tools) -> None:
    codecs = ["gzip", "snappy", "lz4", "zstd"]
    tools.create("packed")
    for codec in codecs:
        tools(
            PRODUCER,
            "--topic",
            "packed",
            "--compression-codec",
            codec,
            stdin=f"{codec * 200}\n{codec}\n",
        )
    assert tools.consume("packed", 8) == [
        value for codec in codecs for value in (codec * 200, codec)
    ]


def test_the_console_consumer_exits_after_the_timeout(tools: Tools) -> None:
    tools.create("few")
    tools(PRODUCER, "--topic", "few", stdin="only\n")
    ended = tools.run(
        CONSUMER,
        "--topic",
        "few",
        "--partition",
        "0",
        "--offset",
        "earliest",
        "--max-messages",
        "9",
        "--timeout-ms",
        "3000",
    )
    assert ended == Ended(0, "only\n", "Processed a total of 1 messages\n")


def test_offsets_by_spec_and_by_timestamp(tools: Tools) -> None:
    tools.create("times", "--partitions", "2")
    now = int(time.time() * 1000)
    producer = LibrdkafkaProducer({"bootstrap.servers": tools.bootstrap})
    for timestamp in (now - 3000, now, now - 1000):
        producer.produce("times", value=b"x", partition=1, timestamp=timestamp)
    assert producer.flush(30) == 0
    assert tools.offsets("times", "-1") == ["times:0:0", "times:1:3"]
    assert tools.offsets("times", "-2") == ["times:0:0", "times:1:0"]
    assert tools.offsets("times", "-3") == [
        "times:1:1"
    ]  # An empty partition has no largest timestamp.
    assert tools.offsets("times", str(now - 2999)) == ["times:1:1"]


def test_the_producer_performance_tool_with_default_settings(tools: Tools) -> None:
    tools.create("fast", "--partitions", "3")
    printed = tools(
        PERFORMANCE,
        "--topic",
        "fast",
        "--num-records",
        str(PERFORMANCE_RECORDS),
        "--record-size",
        "100",
        "--throughput",
        "-1",
    )
    assert printed.splitlines()[-1].startswith(f"{PERFORMANCE_RECORDS} records sent, ")
    ends = {
        line.rpartition(":")[0]: int(line.rpartition(":")[2])
        for line in tools.offsets("fast", "-1")
    }
    assert set(ends) == {"fast:0", "fast:1", "fast:2"}
    assert sum(ends.values()) == PERFORMANCE_RECORDS
    assert tools.offsets("fast", "-2") == ["fast:0:0", "fast:1:0", "fast:2:0"]
    directory, sizes = tools.log_directory("fast")
    for partition, size in sizes.items():
        data = b"".join(path.read_bytes() for path in sorted((directory / partition).glob("*.log")))
        headers = [header for _position, header in batches(data)]
        assert len(data) == size
        assert all(
            header.producer_id >= 0 for header in headers
        )  # The producer must be idempotent, as by default.
        assert sum(header.record_count for header in headers) == ends[partition.replace("-", ":")]


def test_delete_records_moves_the_log_start(tools: Tools, tmp_path: Path) -> None:
    tools.create("shed")
    tools(PRODUCER, "--topic", "shed", stdin="one\ntwo\nthree\n")

    def delete(offset: int) -> str:
        file = tmp_path / "offsets.json"
        file.write_text(
            json.dumps(
                {"version": 1, "partitions": [{"topic": "shed", "partition": 0, "offset": offset}]}
            )
        )
        return tools(DELETE_RECORDS, "--offset-json-file", str(file)).splitlines()[-1]

    assert delete(2) == "partition: shed-0\tlow_watermark: 2"
    assert (tools.offsets("shed", "-2"), tools.offsets("shed", "-1")) == (
        ["shed:0:2"],
        ["shed:0:3"],
    )
    assert tools.consume("shed", 1) == ["three"]
    assert delete(4).startswith(
        "partition: shed-0\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException: "
    )
    assert delete(-1) == "partition: shed-0\tlow_watermark: 3"
    assert tools.offsets("shed", "-2") == ["shed:0:3"]


def test_log_dirs_reports_sizes(tools: Tools) -> None:
    tools.create("placed", "--partitions", "2")
    tools(PRODUCER, "--topic", "placed", stdin="something\n")
    directory, sizes = tools.log_directory("placed")
    on_disk = {
        name: sum(path.stat().st_size for path in (directory / name).glob("*.log"))
        for name in ("placed-0", "placed-1")
    }
    assert sizes == on_disk
    assert sum(sizes.values()) > 0


def test_api_versions(tools: Tools) -> None:
    first, *lines = tools(API_VERSIONS).splitlines()
    assert first == f"{tools.bootstrap} (id: 1 rack: null isFenced: false) -> ("
    found = [
        re.fullmatch(r"\t(\w+)\(\d+\): (\d+)(?: to (\d+))? \[usable: (\d+)\],?", line)
        for line in lines
    ]
    spans = {
        match[1]: (int(match[2]), int(match[3] or match[2]), int(match[4]))
        for match in found
        if match
    }
    for name, (lowest, highest) in WHAT_CLIENTS_USE.items():
        low, high, usable = spans[name]
        assert (low <= lowest, high >= highest, usable >= highest) == (True, True, True), (
            f"{name}: {spans[name]}"
        )
    assert not [
        line for line in lines if "UNKNOWN" in line
    ]  # Kafka 4.3 knows every API that Penstock advertises.


def test_the_cluster_id_is_that_of_the_directory(tools: Tools) -> None:
    tools.create("anywhere")
    directory, _sizes = tools.log_directory("anywhere")
    (cluster_id,) = re.findall(
        r"^cluster\.id=(\S{22})$", (directory / "meta.properties").read_text(), re.MULTILINE
    )
    assert tools(CLUSTER, "cluster-id") == f"Cluster ID: {cluster_id}\n"
