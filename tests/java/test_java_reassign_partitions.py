"""Apache Kafka's kafka-reassign-partitions.sh and Penstock's print the same of a cluster, and both
move its partitions.

The cluster is `penstock up --brokers 3`. Run by `make test-java`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.kafka.reassign_partitions import command
from penstock.client.client import Client
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running
from tests.java.kafka_tools import Ended, Tools

pytestmark = pytest.mark.java

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
Both = Callable[..., Ended]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with running(PenstockCluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture
def ours(cluster: PenstockCluster, capsys: pytest.CaptureFixture[str]) -> Both:
    def run(*words: str) -> Ended:
        try:
            code = command.run([*words, "--bootstrap-server", cluster.bootstrap])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return run


@pytest.fixture
def kafkas(cluster: PenstockCluster) -> Both:
    tools = Tools(cluster.bootstrap)
    return lambda *words: tools.run(REASSIGN, *words)


@pytest.fixture
def both(ours: Both, kafkas: Both) -> Both:
    """Run an action that changes nothing with both tools, and compare them."""

    def run(*words: str) -> Ended:
        theirs, our = kafkas(*words), ours(*words)
        assert (our.code, our.stdout) == (theirs.code, _without_trace(theirs.stdout))
        return our

    return run


def _without_trace(text: str) -> str:
    """Remove the stack trace of Kafka's tool: its first line is the class and the message."""
    lines = text.splitlines(keepends=True)
    if lines and lines[0].startswith("Error: "):
        return lines[0]
    return text


def write(tmp_path: Path, name: str, *assignments: list[int]) -> str:
    file = tmp_path / f"{name}.json"
    partitions = [
        {"topic": name, "partition": index, "replicas": replicas}
        for index, replicas in enumerate(assignments)
    ]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(file)


def fill(cluster: PenstockCluster, name: str, size: int) -> None:
    async def work(client: Client) -> None:
        async with client.producer() as producer:
            for _ in range(size // 100_000):
                await (await producer.send(name, b"x" * 100_000, partition=0))

    cluster.ask(work)


def test_both_tools_move_partitions_and_print_the_same(
    cluster: PenstockCluster, ours: Both, kafkas: Both, both: Both, tmp_path: Path
) -> None:
    cluster.create_topic("first", [[1, 2]])
    cluster.create_topic("other", [[1, 2]])
    printed: dict[str, Any] = {}
    for name, tool in (("first", ours), ("other", kafkas)):
        file = write(tmp_path, name, [2, 3])
        started = tool("--execute", "--reassignment-json-file", file, "--throttle", "1000000")
        assert started.code == 0, started
        cluster.wait_partition(name, lambda info: info.replicas == (2, 3))
        verified = both("--verify", "--preserve-throttles", "--reassignment-json-file", file)
        cleared = tool("--verify", "--reassignment-json-file", file)
        printed[name] = [
            re.sub(r'/[^"]*', "/dir", text.replace(name, "topic"))
            for text in (started.stdout, verified.stdout, cleared.stdout)
        ]
    assert printed["first"] == printed["other"]


def test_both_tools_list_verify_and_cancel_a_move_in_progress(
    cluster: PenstockCluster, ours: Both, kafkas: Both, both: Both, tmp_path: Path
) -> None:
    cluster.create_topic("slow", [[1]])
    fill(cluster, "slow", 4_000_000)
    file = ("--reassignment-json-file", write(tmp_path, "slow", [2]))
    cancelled = []
    for tool in (ours, kafkas):
        assert tool("--execute", *file, "--throttle", "1000").code == 0
        listed = both("--list")
        assert listed.stdout.endswith("slow-0: replicas: 2,1. adding: 2. removing: 1.\n")
        both("--verify", *file)
        assert both("--execute", *file).code == 1
        cancelled.append(tool("--cancel", *file))
        assert cluster.partition("slow").replicas == (1,)
    assert cancelled[0] == cancelled[1]
    both("--list")


@pytest.mark.parametrize(
    "text",
    [
        '{"partitions": []}',
        '{"partitions": [{"topic": "first", "partition": 0, "replicas": []}]}',
        '{"partitions": [{"topic": "first", "partition": 0, "replicas": [1, 1]}]}',
        '{"partitions": [{"topic": "first", "partition": 0, "replicas": [9]}]}',
        '{"partitions": [{"topic": "unknown", "partition": 0, "replicas": [1]}]}',
        '{"version": 2, "partitions": []}',
    ],
)
def test_both_tools_refuse_the_same_files(both: Both, tmp_path: Path, text: str) -> None:
    file = tmp_path / "refused.json"
    file.write_text(text)
    assert both("--execute", "--reassignment-json-file", str(file)).code == 1


def test_both_tools_print_the_same_current_assignment(
    cluster: PenstockCluster, ours: Both, kafkas: Both, tmp_path: Path
) -> None:
    cluster.create_topic("generated", [[1, 2], [2, 3]])
    file = tmp_path / "topics.json"
    file.write_text('{"version": 1, "topics": [{"topic": "generated"}]}')
    words = ("--generate", "--topics-to-move-json-file", str(file), "--broker-list", "1,2,3")
    theirs, our = kafkas(*words).stdout.splitlines(), ours(*words).stdout.splitlines()
    assert theirs[:4] == our[:4]
    assert json.loads(theirs[4]).keys() == json.loads(our[4]).keys()
