"""kafka-topics.sh against a real broker.

The expected output is that of Apache Kafka 4.3.0 with one node; tests/java compares both tools on
the same cluster.
"""

from __future__ import annotations

import re

import pytest

from penstock.cli.kafka import topics
from penstock.cli.kafka.options import Refused
from tests.cli.kafka_tool import Result, Tool


@pytest.fixture
def kafka_topics(tool: Tool, bootstrap: str) -> Tool:
    return lambda *words: tool(topics.run, "--bootstrap-server", bootstrap, *words)


def refused(reason: str) -> Result:
    return 1, f"Error while executing topic command : {reason}\n", ""


def partition(topic: str, index: int) -> str:
    return (
        f"\tTopic: {topic}\tPartition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: "
        "\tLastKnownElr: \n"
    )


def test_a_topic_from_creation_to_deletion(kafka_topics: Tool) -> None:
    life = ("--topic", "life")
    created = kafka_topics(
        "--create",
        *life,
        "--partitions",
        "2",
        "--replication-factor",
        "1",
        "--config",
        "retention.ms=100000",
    )
    assert created == (0, "Created topic life.\n", "")
    code, out, err = kafka_topics("--describe", *life)
    heading, first, second = out.splitlines(keepends=True)
    assert (code, err, first, second) == (0, "", partition("life", 0), partition("life", 1))
    assert re.fullmatch(
        (
            r"Topic: life\tTopicId: \S{22}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: "
            r"(.*,)?retention\.ms=100000(,.*)?\n"
        ),
        heading,
    )
    assert kafka_topics("--alter", *life, "--partitions", "3") == (0, "", "")
    assert kafka_topics("--describe", "--topic", "li.*,other")[1].count("Partition: ") == 3
    assert kafka_topics("--list", *life) == (0, "life\n", "")
    assert kafka_topics("--delete", *life) == (0, "", "")
    assert kafka_topics("--list", *life) == (0, "\n", "")


def test_describe_by_id_and_by_filter(kafka_topics: Tool) -> None:
    kafka_topics("--create", "--topic", "found")
    (topic_id,) = re.findall(r"TopicId: (\S+)", kafka_topics("--describe", "--topic", "found")[1])
    by_id = kafka_topics(
        "--describe", "--topic-id", topic_id, "--partition-size-limit-per-response", "1"
    )
    assert by_id == kafka_topics("--describe", "--topic", "found")
    assert kafka_topics("--describe", "--topic", "found", "--at-min-isr-partitions") == (
        0,
        partition("found", 0),
        "",
    )
    for partition_filter in (
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
    ):
        assert kafka_topics("--describe", "--topic", "found", partition_filter) == (0, "", "")
    assert kafka_topics("--describe", "--topic", "missing", "--if-exists") == (0, "", "")
    unknown = "AZ1wbf5DTkqHqR27MwNStg"
    assert kafka_topics("--describe", "--topic-id", unknown) == refused(
        f"TopicId '{unknown}' does not exist as expected"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--describe", "--topic", "nope"], "Topic 'nope' does not exist as expected"),
        (["--delete", "--topic", "nope"], "Topic 'nope' does not exist as expected"),
        (
            ["--alter", "--topic", "nope", "--partitions", "2"],
            "Topic 'nope' does not exist as expected",
        ),
        (["--create", "--topic", "there"], "Topic 'there' already exists."),
        (
            ["--create", "--topic", "p", "--partitions", "x"],
            "Cannot parse argument 'x' of option partitions",
        ),
        (
            ["--create", "--topic", "p", "--partitions", "0"],
            "The partitions must be greater than 0",
        ),
        (
            ["--create", "--topic", "p", "--replication-factor", "0"],
            "The replication factor must be between 1 and 32767 inclusive",
        ),
        (
            ["--create", "--topic", "p", "--replica-assignment", "1:1"],
            "Partition replica lists may not contain duplicate entries: 1",
        ),
        (
            ["--create", "--topic", "p", "--replica-assignment", "1,1:2"],
            "Partition 1 has different replication factor: [1, 2]",
        ),
        (
            ["--create", "--topic", "p", "--config", "x"],
            (
                "requirement failed: Invalid topic config: all configs to be added must be in the "
                'format "key=val".'
            ),
        ),
        (
            ["--create", "--topic", "p", "--replication-factor", "4"],
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 "
            "cannot be reached because only 1 broker(s) "
            "are registered or some brokers have all their log directories cordoned.",
        ),
    ],
)
def test_invalid_requests_print_kafkas_errors(
    kafka_topics: Tool, words: list[str], reason: str
) -> None:
    kafka_topics("--create", "--if-not-exists", "--topic", "there")
    assert kafka_topics(*words) == refused(reason)


def test_creation_prints_kafkas_messages(kafka_topics: Tool) -> None:
    assert kafka_topics("--create", "--topic", "twice") == (0, "Created topic twice.\n", "")
    assert kafka_topics("--create", "--topic", "twice", "--if-not-exists") == (0, "", "")
    assert kafka_topics("--create", "--topic", "placed", "--replica-assignment", "1,1") == (
        0,
        "Created topic placed.\n",
        "",
    )
    assert kafka_topics("--describe", "--topic", "placed")[1].count("Partition: ") == 2
    warning = (
        "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore "
        "('_') could collide. "
        "To avoid issues it is best to use either, but not both.\n"
    )
    assert kafka_topics("--create", "--topic", "a.b_c") == (
        0,
        f"{warning}Created topic a.b_c.\n",
        "",
    )


@pytest.mark.parametrize(
    ("words", "first_line"),
    [
        ([], "Create, delete, describe, or change a topic."),
        (["--list"], "--bootstrap-server must be specified"),
        (["--bogus"], "bogus is not a recognized option"),
        (
            ["--list", "--create"],
            (
                "Command must include exactly one action: --list, --describe, --create, --alter or "
                "--delete"
            ),
        ),
        (["--create", "--bootstrap-server", "x:1"], 'Missing required argument "[topic]"'),
        (
            ["--alter", "--bootstrap-server", "x:1", "--topic", "a"],
            'Missing required argument "[partitions]"',
        ),
        (
            ["--list", "--bootstrap-server", "x:1", "--partitions", "2"],
            'Option "[partitions]" can\'t be used with option "[list]"',
        ),
        (["--describe", "--bootstrap-server"], "Option bootstrap-server requires an argument"),
        (
            [
                "--alter",
                "--bootstrap-server",
                "x:1",
                "--topic",
                "a",
                "--partitions",
                "4",
                "--config",
                "a=b",
            ],
            'Option combination "[[bootstrap-server], [config]]" can\'t be used with option '
            '"[alter]" '
            "(To alter topic configurations, the kafka-configs tool can be used.)",
        ),
    ],
)
def test_invalid_arguments_are_reported_on_stderr(
    tool: Tool, words: list[str], first_line: str
) -> None:
    code, out, err = tool(topics.run, *words)
    assert (code, out, err.splitlines()[0]) == (1, "", first_line)


def test_version_prints_kafkas_version(tool: Tool) -> None:
    assert tool(topics.run, "--version") == (0, "4.3.0\n", "")


@pytest.mark.parametrize(
    ("text", "parsed"), [(None, []), ("1:2,2:3", [[1, 2], [2, 3]]), ("5", [[5]])]
)
def test_replica_assignments(text: str | None, parsed: list[list[int]]) -> None:
    assert topics.parse_assignment(text) == parsed


def test_an_invalid_replica_assignment_is_refused() -> None:
    with pytest.raises(Refused, match="For input string"):
        topics.parse_assignment("1:a")
