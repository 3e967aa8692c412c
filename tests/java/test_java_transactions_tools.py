"""Kafka's kafka-transactions.sh shows the same of Penstock as of Apache Kafka, and so does ours.

Run by `make test-java`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.test_compat_transactions import Topic, wait_for
from tests.compat.transaction_clients import ConfluentTransactions
from tests.e2e.penstock_process import COMMAND, PenstockProcess, running
from tests.java.kafka_node import KafkaNode
from tests.java.kafka_tools import TRANSACTIONS, Ended, Tools

pytestmark = pytest.mark.java

TOPIC = "story"
OPEN, COMMITTED, ABORTED = "open-id", "committed-id", "aborted-id"
Run = Callable[..., Ended]
OURS = COMMAND.parent / "kafka-transactions.sh"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    node = KafkaNode(tmp_path_factory.mktemp("kafka"), {})
    try:
        node.start()
        make_transactions(node.bootstrap)
        yield node.bootstrap
    finally:
        node.kill()


@pytest.fixture(scope="module")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(PenstockProcess(tmp_path_factory.mktemp("penstock"))) as process:
        make_transactions(process.bootstrap)
        yield process.bootstrap


def make_transactions(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(30)
    client = ConfluentTransactions(bootstrap)
    committed, aborted, left_open = map(client.producer, (COMMITTED, ABORTED, OPEN))
    for producer in (committed, aborted, left_open):
        producer.begin()
        producer.send(TOPIC, {partition: [b"value"] for partition in range(3)})
    committed.commit()
    aborted.abort()
    topic = Topic(client, TOPIC, 3)
    # Three records, two markers.
    wait_for(
        lambda: topic.end(committed=False) == dict.fromkeys(range(3), 5),
        lambda: f"{topic.end(committed=False)}",
    )


def theirs(bootstrap: str) -> Run:
    return lambda *arguments: Tools(bootstrap).run(TRANSACTIONS, *arguments)


def ours(bootstrap: str) -> Run:
    def run(*arguments: str) -> Ended:
        command = [str(OURS), "--bootstrap-server", bootstrap, *arguments]
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", timeout=60, check=False
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


def described(run: Run, *arguments: str) -> tuple[int, list[list[str]]]:
    """Return the exit code and the sorted cells of the printed table, without times, ids and
    widths of columns."""
    ended = run(*arguments)
    lines = [re.sub(r"\b\d{13}\b", "time", line) for line in ended.stdout.splitlines()]
    heading, *rows = [[in_order(cell) for cell in line.split("\t")] for line in lines] or [[]]
    chosen = ("ProducerId", "TransactionDurationMs", "Coordinator", "CoordinatorId")
    table = [
        ["chosen" if name in chosen else cell for name, cell in zip(heading, row, strict=False)]
        for row in rows
    ]
    return ended.code, [heading, *sorted(table)]


def in_order(cell: str) -> str:
    """Sort the partitions of a cell: Kafka's tool prints them in no order."""
    return ",".join(sorted(cell.strip().split(",")))


COMMANDS = [
    ("list",),
    ("list", "--duration-filter", "0"),
    ("list", "--duration-filter", "3600000"),
    ("list", "--transactional-id-pattern", "(open|aborted)-.*"),
    ("list", "--transactional-id-pattern", "nothing"),
    ("describe", "--transactional-id", OPEN),
    ("describe", "--transactional-id", COMMITTED),
    ("describe", "--transactional-id", ABORTED),
    ("describe-producers", "--topic", TOPIC, "--partition", "1"),
    ("describe-producers", "--topic", TOPIC, "--partition", "1", "--broker-id", "1"),
    ("find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "0"),
    ("find-hanging", "--broker-id", "1"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_the_tool_shows_the_same_of_both(kafka: str, penstock: str, arguments: list[str]) -> None:
    expected = described(theirs(kafka), *arguments)
    assert described(theirs(penstock), *arguments) == expected
    assert expected[0] == 0
    assert described(ours(penstock), *arguments) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", "--transactional-id", "unknown"),
        ("abort", "--topic", TOPIC, "--partition", "0", "--start-offset", "1000"),
        ("list", "--transactional-id-pattern", "("),
    ],
    ids=" ".join,
)
def test_the_tool_fails_in_the_same_way(kafka: str, penstock: str, arguments: list[str]) -> None:
    expected, seen = theirs(kafka)(*arguments), theirs(penstock)(*arguments)
    assert (seen.code, seen.stdout) == (expected.code, expected.stdout)
    assert seen.stderr.splitlines()[:1] == expected.stderr.splitlines()[:1]
    assert expected.code != 0


def test_a_transaction_is_terminated_by_force(kafka: str, penstock: str) -> None:
    terminate = ("forceTerminateTransaction", "--transactionalId", OPEN)
    for bootstrap in (kafka, penstock):
        assert theirs(bootstrap)(*terminate).code == 0
        Topic(ConfluentTransactions(bootstrap), TOPIC, 3).wait_stable()
    state = ("describe", "--transactional-id", OPEN)
    assert described(theirs(penstock), *state) == described(theirs(kafka), *state)
