"""Run Apache Kafka's command line tools with arguments and stdin, one Java process at a time.

Knows only the address of the broker.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.java.kafka_jars import JAVA_TIMEOUT_S, fetch_jars

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
# These tools take the address before the subcommand, ClusterTool after it, and the others in any
# position.
_ADDRESS_FIRST = (QUORUM, FEATURES, TRANSACTIONS)


def java(main: str, *arguments: str) -> list[str]:
    """Return the command of a small, fast-starting JVM."""
    return [
        "java",
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-Dfile.encoding=UTF-8",
        "-cp",
        f"{fetch_jars()}/*",
        main,
        *arguments,
    ]


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str


class Tools:
    """Kafka's tools with the address of one broker, or of what the option says."""

    def __init__(self, bootstrap: str, option: str = "--bootstrap-server") -> None:
        self.bootstrap = bootstrap
        self._option = option

    def run(self, main: str, *arguments: str, stdin: str = "") -> Ended:
        done = subprocess.run(
            java(main, *self.addressed(main, *arguments)),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=JAVA_TIMEOUT_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def addressed(self, main: str, *arguments: str) -> list[str]:
        address = [self._option, self.bootstrap]
        return [*address, *arguments] if main in _ADDRESS_FIRST else [*arguments, *address]

    def __call__(self, main: str, *arguments: str, stdin: str = "") -> str:
        """Run a tool to its successful end, and return its output."""
        ended = self.run(main, *arguments, stdin=stdin)
        assert ended.code == 0, f"{main} {arguments}: {ended}"
        return ended.stdout

    def create(self, topic: str, *more: str) -> None:
        assert self(TOPICS, "--create", "--topic", topic, *more) == f"Created topic {topic}.\n"

    def offsets(self, topic: str, timestamp: str) -> list[str]:
        return self(GET_OFFSETS, "--topic", topic, "--time", timestamp).split()

    def consume(
        self, topic: str, count: int, *more: str, partition: int = 0, since: str = "earliest"
    ) -> list[str]:
        where = ["--topic", topic, "--partition", str(partition), "--offset", since]
        return self(
            CONSUMER, *where, "--max-messages", str(count), "--timeout-ms", "20000", *more
        ).splitlines()

    def settings(self, *entity: str) -> list[str]:
        """Return the lines of kafka-configs --describe after the heading."""
        return [line.strip() for line in self(CONFIGS, "--describe", *entity).splitlines()[1:]]

    def log_directory(self, topic: str) -> tuple[Path, dict[str, int]]:
        """Return the broker's log directory, and the size of each partition of the topic in it."""
        printed = self(LOG_DIRS, "--describe", "--topic-list", topic).splitlines()[-1]
        (broker,) = json.loads(printed)["brokers"]
        (directory,) = broker["logDirs"]
        assert (broker["broker"], directory["error"]) == (1, None)
        return Path(directory["logDir"]), {
            partition["partition"]: partition["size"] for partition in directory["partitions"]
        }
