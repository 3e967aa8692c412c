"""kafka-reassign-partitions.sh: its arguments and files, and its actions on a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.kafka.reassign_partitions import command
from penstock.cli.kafka.reassign_partitions.json_files import format_reassignment
from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.ids import TopicPartition
from tests.cli.kafka_tool import Result, Tool
from tests.cli.waiting import ask, eventually

Reassign = Callable[..., Result]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--bootstrap-server", "x:1"],
            (
                "Command must include exactly one action: --generate, --execute, --verify, "
                "--cancel, --list"
            ),
        ),
        (
            ["--list"],
            "Please specify either --bootstrap-server or --bootstrap-controller",
        ),
        (
            ["--list", "--bootstrap-server", "x:1", "--bootstrap-controller", "x:2"],
            "Please don't specify both --bootstrap-server and --bootstrap-controller",
        ),
        (
            ["--verify", "--bootstrap-server", "x:1"],
            'Missing required argument "[reassignment-json-file]"',
        ),
        (
            ["--generate", "--bootstrap-server", "x:1", "--broker-list", "1"],
            'Missing required argument "[topics-to-move-json-file]"',
        ),
        (
            ["--list", "--bootstrap-server", "x:1", "--throttle", "1"],
            'Option "[throttle]" can\'t be used with action "[list]"',
        ),
    ],
)
def test_invalid_arguments_print_kafkas_errors_and_the_usage(
    tool: Tool, words: list[str], reason: str
) -> None:
    code, out, err = tool(command.run, *words)
    assert (code, out, err.splitlines()[0]) == (1, "", reason)


def test_the_file_is_formatted_as_by_kafka() -> None:
    text = format_reassignment({TopicPartition("b", 1): [2, 1], TopicPartition("a", 0): [1]}, {})
    assert text == (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1],"log_dirs":["any"]},'
        '{"topic":"b","partition":1,"replicas":[2,1],"log_dirs":["any","any"]}]}'
    )


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster(brokers=3) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def reassign(tool: Tool, servers: str) -> Reassign:
    def call(*words: str) -> Result:
        return tool(command.run, "--bootstrap-server", servers, *words)

    return call


@pytest.fixture
def file(tmp_path: Path) -> Callable[[Any], str]:
    def write(data: Any) -> str:
        path = tmp_path / "file.json"
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return str(path)

    return write


def create(servers: str, name: str, assignments: list[list[int]]) -> None:
    async def work(client: Client) -> None:
        await client.admin.create_topic(name, assignments=assignments)

    ask(servers, work)


def fill(servers: str, name: str, size: int) -> None:
    """Write this many bytes to the topic's first partition."""

    async def work(client: Client) -> None:
        async with client.producer() as producer:
            for _ in range(size // 100_000):
                await (await producer.send(name, b"x" * 100_000, partition=0))

    ask(servers, work)


def replicas(servers: str, name: str) -> list[tuple[int, ...]]:
    async def work(client: Client) -> list[tuple[int, ...]]:
        (topic,) = await client.admin.describe_topics([name])
        return [partition.replicas for partition in topic.partitions]

    return ask(servers, work)


def configs(servers: str, kind: ConfigResourceType, name: str) -> dict[str, str | None]:
    async def work(client: Client) -> dict[str, str | None]:
        return {
            entry.name: entry.value
            for entry in await client.admin.describe_configs(kind, name)
            if "throttled" in entry.name and entry.source not in (4, 5)
        }

    return ask(servers, work)


def partitions(name: str, *assignments: list[int]) -> dict[str, Any]:
    return {
        "version": 1,
        "partitions": [
            {"topic": name, "partition": index, "replicas": ids}
            for index, ids in enumerate(assignments)
        ],
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no json", "The input string is not a valid JSON"),
        ('{"version": 2}', "Not supported version field value 2"),
        ('{"partitions": []}', "Partition reassignment list cannot be empty"),
        ('{"partitions": [{"topic": "t"}]}', "No such field exists: `partition`"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}',
            "Partition replica list cannot be empty",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
            (
                "Partition replica lists may not contain duplicate entries: t-0 contains multiple "
                "entries for 1"
            ),
        ),
        (
            (
                '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
                '{"topic": "t", "partition": 0, "replicas": [2]}]}'
            ),
            "Partition reassignment contains duplicate topic partitions: t-0",
        ),
        (
            (
                '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], '
                '"log_dirs": ["any"]}]}'
            ),
            (
                "Size of replicas list [1, 2] is different from size of log dirs list [any] for "
                "partition t-0"
            ),
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [9]}]}',
            "Unknown broker id 9",
        ),
        (
            '{"partitions": [{"topic": "unknown", "partition": 0, "replicas": [1]}]}',
            (
                "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: Topic unknown "
                "not found."
            ),
        ),
    ],
)
def test_an_invalid_reassignment_is_refused(
    reassign: Reassign, file: Callable[[Any], str], text: str, reason: str
) -> None:
    words = ("--execute", "--reassignment-json-file", file(text))
    assert reassign(*words) == (1, f"Error: {reason}\n", "")


def test_a_candidate_is_generated_for_the_listed_brokers(
    reassign: Reassign, file: Callable[[Any], str], servers: str
) -> None:
    create(servers, "generated", [[1, 2], [1, 2], [2, 1]])
    topics = file({"version": 1, "topics": [{"topic": "generated"}]})
    words = ("--generate", "--topics-to-move-json-file", topics, "--broker-list")
    code, out, _err = reassign(*words, "2,3")
    assert code == 0
    heading, current, empty, proposed_heading, proposed = out.splitlines()
    assert (heading, empty) == ("Current partition replica assignment", "")
    assert proposed_heading == "Proposed partition reassignment configuration"
    listed = json.loads(current)["partitions"]
    assert [entry["replicas"] for entry in listed] == [[1, 2], [1, 2], [2, 1]]
    assert all(path.startswith("/") for entry in listed for path in entry["log_dirs"])
    for entry in json.loads(proposed)["partitions"]:
        assert sorted(entry["replicas"]) == [2, 3]
        assert entry["log_dirs"] == ["any", "any"]
    assert reassign(*words, "1,1") == (
        1,
        "Error: Broker list contains duplicate entries: [1]\n",
        "",
    )
    code, out, _err = reassign(*words, "3")
    assert code == 1
    assert out.startswith("Error: The target replication factor of 2 cannot be reached because")


def test_a_reassignment_is_executed_throttled_and_verified(
    reassign: Reassign, file: Callable[[Any], str], servers: str
) -> None:
    create(servers, "moved", [[1], [2]])
    target = file(partitions("moved", [2], [3]))
    code, out, _err = reassign(
        "--execute", "--reassignment-json-file", target, "--throttle", "1000000"
    )
    assert code == 0
    heading, empty, current, empty_too, *rest = out.splitlines()
    assert (heading, empty, empty_too) == ("Current partition replica assignment", "", "")
    assert [entry["replicas"] for entry in json.loads(current)["partitions"]] == [[1], [2]]
    assert rest == [
        "Save this to use as the --reassignment-json-file option during rollback",
        (
            "Warning: You must run --verify periodically, until the reassignment completes, to "
            "ensure the throttle is removed."
        ),
        "The inter-broker throttle limit was set to 1000000 B/s",
        "Successfully started partition reassignments for moved-0,moved-1",
    ]
    assert configs(servers, ConfigResourceType.TOPIC, "moved") == {
        "leader.replication.throttled.replicas": "0:1,1:2",
        "follower.replication.throttled.replicas": "0:2,1:3",
    }
    eventually(lambda: replicas(servers, "moved") == [(2,), (3,)])
    assert reassign("--list") == (0, "No partition reassignments found.\n", "")
    verify = ("--verify", "--reassignment-json-file", target)
    status = (
        "Status of partition reassignment:\n"
        "Reassignment of partition moved-0 is completed.\n"
        "Reassignment of partition moved-1 is completed.\n\n"
    )
    assert reassign(*verify, "--preserve-throttles") == (0, status, "")
    assert configs(servers, ConfigResourceType.TOPIC, "moved")
    assert reassign(*verify) == (
        0,
        (
            f"{status}Clearing broker-level throttles on brokers 1,2,3\n"
            "Clearing topic-level throttles on topic moved\n"
        ),
        "",
    )
    assert configs(servers, ConfigResourceType.TOPIC, "moved") == {}
    assert configs(servers, ConfigResourceType.BROKER, "1") == {}


def test_verify_says_what_is_not_as_in_the_file(
    reassign: Reassign, file: Callable[[Any], str], servers: str
) -> None:
    create(servers, "unmoved", [[1, 2]])
    data = partitions("unmoved", [2, 3])
    data["partitions"] += partitions("nowhere", [1])["partitions"]
    words = ("--verify", "--preserve-throttles", "--reassignment-json-file", file(data))
    assert reassign(*words) == (
        0,
        (
            "Status of partition reassignment:\n"
            "There is no active reassignment of partition nowhere-0, but replica set is  rather "
            "than 1.\n"
            "There is no active reassignment of partition unmoved-0, but replica set is 1,2 rather "
            "than 2,3.\n\n"
        ),
        "",
    )


def test_log_directories_of_the_file_are_requested_and_verified(
    reassign: Reassign, file: Callable[[Any], str], servers: str
) -> None:
    create(servers, "placed", [[1]])
    topics = file({"version": 1, "topics": [{"topic": "placed"}]})
    _code, out, _err = reassign(
        "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2"
    )
    (path,) = json.loads(out.splitlines()[1])["partitions"][0]["log_dirs"]
    data = partitions("placed", [1])
    data["partitions"][0]["log_dirs"] = [path]
    target = file(data)
    code, out, _err = reassign("--execute", "--reassignment-json-file", target)
    assert (code, out.splitlines()[-1]) == (
        0,
        f"Successfully started moving log directory to {path} for replica placed-0 with broker 1 ",
    )
    code, out, _err = reassign("--verify", "--reassignment-json-file", target)
    assert code == 0
    assert "Reassignment of replica placed-0-1 completed successfully.\n" in out
    data["partitions"][0]["log_dirs"] = ["/nowhere"]
    code, out, _err = reassign("--execute", "--reassignment-json-file", file(data))
    assert (code, out.splitlines()[-1]) == (1, "Error: Failed to alter dir for placed-0-1")


def test_a_reassignment_in_progress_is_listed_and_cancelled(
    reassign: Reassign, file: Callable[[Any], str], servers: str
) -> None:
    create(servers, "large", [[1]])
    fill(servers, "large", 4_000_000)
    target = ("--reassignment-json-file", file(partitions("large", [2])))
    # Far too slow to complete: a first fetch copies at most a megabyte.
    assert reassign("--execute", *target, "--throttle", "1000")[0] == 0
    listed = "Current partition reassignments:\nlarge-0: replicas: 2,1. adding: 2. removing: 1.\n"
    assert reassign("--list") == (0, listed, "")
    assert reassign("--verify", *target) == (
        0,
        (
            "Status of partition reassignment:\n"
            "Reassignment of partition large-0 is still in progress.\n\n"
        ),
        "",
    )
    code, out, _err = reassign("--execute", *target)
    assert (code, out[:65]) == (
        1,
        "Cannot execute because there is an existing partition assignment.",
    )
    # --additional changes the throttle.
    assert reassign("--execute", *target, "--additional", "--throttle", "2000")[0] == 0
    assert configs(servers, ConfigResourceType.BROKER, "2") == {
        "leader.replication.throttled.rate": "2000",
        "follower.replication.throttled.rate": "2000",
    }
    code, out, _err = reassign("--cancel", *target)
    assert (code, out) == (
        0,
        (
            "Successfully cancelled partition reassignment for: large-0\n"
            "None of the specified partition moves are active."
            "Clearing broker-level throttles on brokers 1,2,3\n"
            "Clearing topic-level throttles on topic large\n"
        ),
    )
    assert replicas(servers, "large") == [(1,)]
    assert configs(servers, ConfigResourceType.BROKER, "2") == {}
    assert reassign("--list") == (0, "No partition reassignments found.\n", "")


def test_cancel_without_an_active_reassignment(
    reassign: Reassign, file: Callable[[Any], str], servers: str
) -> None:
    create(servers, "idle", [[1]])
    words = ("--cancel", "--reassignment-json-file", file(partitions("idle", [2])))
    assert reassign(*words) == (
        0,
        (
            "None of the specified partition reassignments are active.\n"
            "None of the specified partition moves are active."
            "Clearing broker-level throttles on brokers 1,2,3\n"
            "Clearing topic-level throttles on topic idle\n"
        ),
        "",
    )
