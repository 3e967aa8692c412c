"""A word count of Kafka Streams with exactly_once_v2 is exact while brokers are bounced and the
application is killed.

Run by `make test-java`.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running
from tests.java.kafka_jars import KAFKA_VERSION, PEER, compile_java, copy_dependencies

pytestmark = pytest.mark.java

LINES, COUNTS, PARTITIONS = "lines", "counts", 3
WORDS = ("penstock", "river", "water", "wheel", "turbine")
LINES_A_ROUND = 300
PATIENCE_S = 180.0


def test_a_word_count_is_exact_while_brokers_are_bounced(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path)) as cluster:
        create_topics(cluster.bootstrap)
        command = streams_command(cluster.bootstrap, tmp_path / "state")
        expected: Counter[str] = Counter()
        for broker in (1, 2, 3):
            # The application is killed with a transaction open, and goes on with its state.
            with application(command, tmp_path / f"printed-{broker}"):
                expected += count_lines(cluster.bootstrap)
                wait_counted(cluster.bootstrap, expected)
                cluster.nodes("kill", str(broker))
                expected += count_lines(cluster.bootstrap)
                wait_counted(cluster.bootstrap, expected)
                cluster.nodes("restart", str(broker))
                expected += count_lines(cluster.bootstrap)
        with application(command, tmp_path / "printed"):
            wait_counted(cluster.bootstrap, expected)
        updates = read_counts(cluster.bootstrap)
        assert updates == {word: list(range(1, expected[word] + 1)) for word in WORDS}


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(
        [NewTopic(name, PARTITIONS, 3) for name in (LINES, COUNTS)]
    ).values():
        future.result(30)


def streams_command(bootstrap: str, state: Path) -> Sequence[str]:
    jars = copy_dependencies(
        "Kafka Streams",
        "streams-pom.xml",
        PEER / f"streams-{KAFKA_VERSION}",
        f"-Dkafka.version={KAFKA_VERSION}",
    )
    path = f"{compile_java('WordCount', jars)}{os.pathsep}{jars}/*"
    arguments = (bootstrap, str(state), LINES, COUNTS, "exactly_once_v2")
    return ["java", "-Xmx256m", "-cp", path, "WordCount", *arguments]


@contextmanager
def application(command: Sequence[str], output: Path) -> Iterator[None]:
    """Run the application, and kill it in the end."""
    with output.open("wb") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)
    try:
        yield
        assert process.poll() is None, output.read_text()
    finally:
        process.kill()
        process.wait()


def count_lines(bootstrap: str) -> Counter[str]:
    """Produce lines, and return how often each word is in them."""
    lines = [" ".join(WORDS[: 1 + number % len(WORDS)]) for number in range(LINES_A_ROUND)]
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for line in lines:
        producer.produce(LINES, line)
    assert producer.flush(PATIENCE_S) == 0
    return Counter(word for line in lines for word in line.split())


def wait_counted(bootstrap: str, expected: Counter[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        seen = {word: updates[-1] for word, updates in read_counts(bootstrap).items() if updates}
        if seen == expected:
            return
        assert time.monotonic() < deadline, f"counted {seen} of {expected}"
        time.sleep(0.5)


def read_counts(bootstrap: str) -> dict[str, list[int]]:
    """Return every committed count of each word, in order."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "assigned-only",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.assign(
        [TopicPartition(COUNTS, index, OFFSET_BEGINNING) for index in range(PARTITIONS)]
    )
    updates: dict[str, list[int]] = {word: [] for word in WORDS}
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, "the counts could not be read"
            messages: list[Any] = consumer.consume(1_000, timeout=0.2)
            for message in messages:
                error = message.error()
                if error is None:
                    updates[message.key().decode()].append(int(message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return updates
