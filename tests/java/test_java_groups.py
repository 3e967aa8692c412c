"""Apache Kafka's consumers, group tools and Kafka Streams against `penstock up --brokers 3`.

Run by `make test-java`.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import COMMAND, running
from tests.java.kafka_jars import KAFKA_VERSION, PEER, compile_java, copy_dependencies
from tests.java.kafka_tools import CONSUMER, Tools, java
from tests.java.verifiable_consumer import TOOL, assert_committed_offsets_never_go_back, events

pytestmark = pytest.mark.java

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
PROTOCOLS = ("classic", "consumer")
PATIENCE_S = 120.0
WORDS = ("penstock", "river", "water", "wheel")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with running(PenstockCluster(tmp_path_factory.mktemp("groups"))) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools(cluster: PenstockCluster) -> Tools:
    return Tools(cluster.bootstrap)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait long: Java starts slowly, and a rebalance waits for its members."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE_S:g} s"
        time.sleep(0.2)


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_console_consumer_in_a_group_and_the_group_tools(tools: Tools, protocol: str) -> None:
    topic, group = f"console-{protocol}", f"readers-{protocol}"
    tools.create(topic, "--partitions", "3", "--replication-factor", "3")
    produce(tools.bootstrap, topic, [str(number) for number in range(30)])
    reading = ("--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", "15000")
    shown = tools(
        CONSUMER,
        *reading,
        "--max-messages",
        "30",
        "--command-property",
        f"group.protocol={protocol}",
    ).split()
    assert sorted(map(int, shown)) == list(range(30))
    rows = [
        line.split() for line in tools(GROUPS, "--describe", "--group", group).splitlines() if line
    ]
    assert [(row[1], row[3], row[4], row[5]) for row in rows[1:]] == [
        (topic, row[3], row[3], "0") for row in rows[1:]
    ]
    assert sum(int(row[3]) for row in rows[1:]) == 30
    ours = subprocess.run(
        [
            str(COMMAND.parent / "kafka-consumer-groups.sh"),
            "--bootstrap-server",
            tools.bootstrap,
            "--describe",
            "--group",
            group,
        ],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    assert [line.split() for line in ours.stdout.splitlines() if line] == rows
    assert re.search(rf"^{group} +Empty", tools(GROUPS, "--list", "--state"), re.M)
    tools(
        GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
    )
    assert len(tools(CONSUMER, *reading, "--max-messages", "30").split()) == 30
    assert "was successful" in tools(GROUPS, "--delete", "--group", group)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_consumer_performance_tool_in_a_group(tools: Tools, protocol: str) -> None:
    topic = f"perf-{protocol}"
    tools.create(topic, "--partitions", "3", "--replication-factor", "3")
    produce(tools.bootstrap, topic, ["x" * 100] * 5_000)
    words = (
        "--topic",
        topic,
        "--num-records",
        "5000",
        "--timeout",
        "30000",
        "--command-property",
        f"group.protocol={protocol}",
    )
    heading, figures = [
        line for line in tools(CONSUMER_PERFORMANCE, *words).splitlines() if "," in line
    ]
    assert (
        int(
            dict(zip(heading.split(", "), figures.split(", "), strict=True))[
                "data.consumed.in.nMsg"
            ]
        )
        >= 5_000
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_verifiable_consumer_survives_a_restart_of_every_broker(
    cluster: PenstockCluster, tools: Tools, tmp_path: Path, protocol: str
) -> None:
    topic, group = f"verified-{protocol}", f"verifiers-{protocol}"
    tools.create(topic, "--partitions", "6", "--replication-factor", "3")
    words = [
        "--topic",
        topic,
        "--group-id",
        group,
        "--reset-policy",
        "earliest",
        "--group-protocol",
        protocol,
        "--verbose",
    ]
    logs = [tmp_path / f"consumer{number}" for number in range(2)]
    consumers = []
    sent = 0
    try:
        for log in logs:
            with log.open("wb") as printed:
                consumers.append(
                    subprocess.Popen(
                        java(TOOL, "--bootstrap-server", cluster.bootstrap, *words), stdout=printed
                    )
                )
        for broker in (1, 2, 3):
            produce(cluster.bootstrap, topic, [str(number) for number in range(sent, sent + 300)])
            sent += 300
            wait_consumed(logs, sent)
            cluster.nodes("kill", str(broker))
            produce(cluster.bootstrap, topic, [str(number) for number in range(sent, sent + 300)])
            sent += 300
            cluster.nodes("restart", str(broker))
            wait_consumed(logs, sent)
    finally:
        for consumer in consumers:
            consumer.kill()
            consumer.wait()
    assert set(consumed(logs)) == {str(number) for number in range(sent)}
    committed = [
        event for log in logs for event in events(log) if event["name"] == "offsets_committed"
    ]
    assert any(event["success"] for event in committed)
    assert_committed_offsets_never_go_back(committed)


def wait_consumed(logs: list[Path], count: int) -> None:
    wait_for(lambda: len(consumed(logs)) >= count, f"{count} consumed records")


def consumed(logs: list[Path]) -> set[str]:
    return {
        event["value"] for log in logs for event in events(log) if event["name"] == "record_data"
    }


def test_a_kafka_streams_word_count_survives_a_killed_broker(
    cluster: PenstockCluster, tools: Tools, tmp_path: Path
) -> None:
    for topic in ("lines", "counts"):
        tools.create(topic, "--partitions", "3", "--replication-factor", "3")
    streams = copy_dependencies(
        "Kafka Streams",
        "streams-pom.xml",
        PEER / f"streams-{KAFKA_VERSION}",
        f"-Dkafka.version={KAFKA_VERSION}",
    )
    classes = compile_java("WordCount", streams)
    path = f"{classes}{os.pathsep}{streams}/*"
    command = [
        "java",
        "-Xmx256m",
        "-cp",
        path,
        "WordCount",
        cluster.bootstrap,
        str(tmp_path / "state"),
        "lines",
        "counts",
    ]
    with (tmp_path / "printed").open("wb") as printed:
        application = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)
    try:
        expected: Counter[str] = Counter()
        expected += count_lines(cluster.bootstrap, 200)
        wait_counted(cluster.bootstrap, expected)
        cluster.nodes("kill", "2")
        expected += count_lines(cluster.bootstrap, 200)
        wait_counted(cluster.bootstrap, expected)
        cluster.nodes("restart", "2")
        assert application.poll() is None, (tmp_path / "printed").read_text()
    finally:
        application.kill()
        application.wait()
    names = [
        name
        for name in tools("org.apache.kafka.tools.TopicCommand", "--list").split()
        if name.startswith("word-count-")
    ]
    assert [name.rsplit("-", 1)[1] for name in sorted(names)] == ["changelog", "repartition"]


def wait_counted(bootstrap: str, expected: Counter[str]) -> None:
    wait_for(
        lambda: all(counts(bootstrap)[word] >= expected[word] for word in WORDS),
        f"a count of {expected}",
    )


def count_lines(bootstrap: str, count: int) -> Counter[str]:
    lines = [" ".join(WORDS[: 1 + number % len(WORDS)]) for number in range(count)]
    produce(bootstrap, "lines", lines)
    return Counter(word for line in lines for word in line.split())


def counts(bootstrap: str) -> Counter[str]:
    """Return the last count of each word in the output topic."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"look-{time.monotonic_ns()}",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.subscribe(["counts"])
    found: Counter[str] = Counter()
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < 3 and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is not None:
            ended.add(message.partition() or 0)
        elif message is not None:
            found[(message.key() or b"").decode()] = int(message.value() or b"0")
    consumer.close()
    return found
