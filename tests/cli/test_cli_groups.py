"""penstock groups, penstock consume --group and kafka-consumer-groups.sh with a real broker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

import penstock
from penstock.cli import build
from penstock.cli.groups import time_to_catch_up
from penstock.cli.kafka import consumer_groups, consumer_perf_test
from tests.cli.kafka_tool import Result

TIMEOUT_S = 30.0
RECORDS = 20


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({"group.initial.rebalance.delay.ms": "0"}) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def penstock_command(servers: str) -> Callable[..., Result]:
    def call(*words: str) -> Result:
        done = CliRunner().invoke(build(), [*words, "--bootstrap-server", servers])
        return done.exit_code, done.stdout, done.stderr

    return call


@pytest.fixture
def kafka_tool(servers: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def call(run: Callable[[Sequence[str]], int], *words: str) -> Result:
        try:
            code = run(["--bootstrap-server", servers, *words])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def create_topic(servers: str, topic: str, partitions: int = 1) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(topic, partitions)]).values():
        created.result()
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        producer.produce(topic, value=str(number), partition=number % partitions)
    assert producer.flush(TIMEOUT_S) == 0
    return topic


def join_group(servers: str, group: str, topic: str) -> Consumer:
    """Return a member that has its assignment and has committed nothing."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    assert consumer.poll(TIMEOUT_S) is not None
    return consumer


def test_a_group_continues_at_its_committed_offset(
    servers: str, penstock_command: Callable[..., Result]
) -> None:
    create_topic(servers, "gone-on")
    consume = ("consume", "gone-on", "--group", "goers", "--from-beginning", "--max-messages")
    assert penstock_command(*consume, "5") == (0, "".join(f"{number}\n" for number in range(5)), "")
    assert penstock_command(*consume, "3") == (0, "5\n6\n7\n", "")
    code, out, _err = penstock_command("groups", "describe", "goers", "--over", "0", "--json")
    described = json.loads(out)
    assert (code, described["state"], described["members"], described["lag"]) == (
        0,
        "Empty",
        [],
        RECORDS - 8,
    )
    (partition,) = described["partitions"]
    assert (partition["offset"], partition["end"]) == (8, RECORDS)
    assert partition["lag"] == RECORDS - 8
    assert re.search(
        r"^goers +Classic +consumer +Empty$", penstock_command("groups", "list")[1], re.M
    )


def test_members_and_their_partitions_are_shown(
    servers: str, penstock_command: Callable[..., Result], kafka_tool: Callable[..., Result]
) -> None:
    topic = create_topic(servers, "shown", 2)
    consumer = join_group(servers, "viewers", topic)
    try:
        code, out, err = penstock_command("groups", "describe", "viewers", "--over", "0")
        assert (code, err) == (0, "")
        assert out.startswith("group viewers  Stable  classic  assignor range\n")
        code, out, err = kafka_tool(consumer_groups.run, "--describe", "--group", "viewers")
        rows = [line.split() for line in out.splitlines() if line]
        assert rows[0] == [
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "CONSUMER-ID",
            "HOST",
            "CLIENT-ID",
        ]
        assert [row[:6] for row in rows[1:]] == [
            ["viewers", topic, str(index), "-", str(RECORDS // 2), "-"] for index in (0, 1)
        ]
        assert {(row[7], row[8]) for row in rows[1:]} == {("/127.0.0.1", "rdkafka")}
        members = kafka_tool(
            consumer_groups.run, "--describe", "--group", "viewers", "--members", "--verbose"
        )[1]
        assert f"{topic}:0,1" in members
        refused = penstock_command(
            "groups", "reset-offsets", "viewers", "--topic", topic, "--to-earliest", "--yes"
        )
        assert refused[0] == 1
        assert (
            "group viewers has active members, which would overwrite its offsets: stop them first"
            in refused[2]
        )
        executed = kafka_tool(
            consumer_groups.run,
            "--reset-offsets",
            "--group",
            "viewers",
            "--topic",
            topic,
            "--to-earliest",
            "--execute",
        )
        assert (
            "can only be reset if the group 'viewers' is inactive, but the current state is Stable."
            in executed[1]
        )
        assert penstock_command("groups", "delete", "viewers", "--yes")[0] == 1
    finally:
        consumer.close()


def test_offsets_are_reset(
    servers: str,
    penstock_command: Callable[..., Result],
    kafka_tool: Callable[..., Result],
    tmp_path: Path,
) -> None:
    topic = create_topic(servers, "moved", 2)

    def now() -> list[int]:
        described = json.loads(
            penstock_command("groups", "describe", "movers", "--over", "0", "--json")[1]
        )
        return [partition["offset"] for partition in described["partitions"]]

    def reset(*words: str) -> Result:
        return penstock_command("groups", "reset-offsets", "movers", "--yes", *words)

    assert reset("--topic", topic, "--to-latest")[0] == 0
    assert now() == [10, 10]
    assert reset("--all-topics", "--shift-by", "-3", "--dry-run")[1].splitlines()[1].split() == [
        topic,
        "0",
        "10",
        "7",
    ]
    assert now() == [10, 10]
    assert reset("--topic", f"{topic}:1", "--to-offset", "4")[0] == 0
    assert reset("--topic", f"{topic}:0", "--shift-by", "-99")[0] == 0
    assert now() == [0, 4]
    assert reset("--all-topics", "--to-time", "1d")[0] == 0
    assert now() == [0, 0]
    file = tmp_path / "plan.csv"
    file.write_text(f'"{topic}",0,3\n"{topic}",1,99\n')
    words = ("--reset-offsets", "--group", "movers", "--from-file", str(file))
    code, out, _err = kafka_tool(consumer_groups.run, *words, "--export", "--dry-run")
    assert (code, out) == (0, f'"{topic}",0,3\n"{topic}",1,10\n')
    assert now() == [0, 0]
    kafka_tool(consumer_groups.run, *words, "--execute")
    assert now() == [3, 10]
    assert (
        "NEW-OFFSET"
        in kafka_tool(
            consumer_groups.run,
            "--reset-offsets",
            "--group",
            "movers",
            "--all-topics",
            "--to-earliest",
            "--execute",
        )[1]
    )
    assert now() == [0, 0]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["reset-offsets", "g", "--topic", "t"], "give one of --to-earliest"),
        (["reset-offsets", "g", "--to-latest"], "give either --topic"),
        (["reset-offsets", "g", "--topic", "no-such", "--to-latest", "--yes"], "no-such"),
        (["describe", "missing", "--over", "0"], "GROUP_ID_NOT_FOUND"),
        (["delete", "missing", "--yes"], "GROUP_ID_NOT_FOUND"),
    ],
)
def test_invalid_arguments_are_refused(
    penstock_command: Callable[..., Result], words: list[str], reason: str
) -> None:
    code, out, err = penstock_command("groups", *words)
    assert (code, out) == (1, "")
    assert err.startswith(f"penstock groups {words[0]}: ")
    assert reason in err


def test_offsets_and_groups_are_deleted(
    servers: str, penstock_command: Callable[..., Result], kafka_tool: Callable[..., Result]
) -> None:
    topic = create_topic(servers, "left")
    penstock_command("groups", "reset-offsets", "leavers", "--topic", topic, "--to-latest", "-y")
    code, out, _err = kafka_tool(
        consumer_groups.run, "--delete-offsets", "--group", "leavers", "--topic", topic
    )
    assert code == 0
    assert re.search(rf"^{topic} +0 +Successful", out, re.M)
    penstock_command("groups", "reset-offsets", "leavers", "--topic", topic, "--to-latest", "-y")
    assert penstock_command("groups", "delete", "leavers", "--yes") == (
        0,
        "Deleted group leavers.\n",
        "",
    )
    gone = kafka_tool(consumer_groups.run, "--describe", "--group", "leavers")
    assert gone[:2] == (0, "\nError: Consumer group 'leavers' does not exist.\n")
    failed = kafka_tool(consumer_groups.run, "--delete", "--group", "leavers")[1]
    assert (
        "* Group 'leavers' could not be deleted due to: "
        "org.apache.kafka.common.errors.GroupIdNotFoundException"
    ) in failed


def test_the_consumer_perf_test_counts_its_records(
    servers: str, kafka_tool: Callable[..., Result]
) -> None:
    topic = create_topic(servers, "perf", 2)
    code, out, _err = kafka_tool(
        consumer_perf_test.run, "--topic", topic, "--num-records", str(RECORDS)
    )
    heading, figures = out.splitlines()
    assert code == 0
    assert dict(zip(heading.split(", "), figures.split(", "), strict=True))[
        "data.consumed.in.nMsg"
    ] == str(RECORDS)


def test_validate_regex_accepts_valid_re2(kafka_tool: Callable[..., Result]) -> None:
    assert (
        kafka_tool(consumer_groups.run, "--validate-regex", "orders-.*")[1]
        == "The regular expression `orders-.*` is valid.\n"
    )
    assert kafka_tool(consumer_groups.run, "--validate-regex", "(unclosed")[1].startswith(
        "The regular expression `(unclosed` is invalid: "
    )


def test_time_to_catch_up() -> None:
    assert time_to_catch_up(0, 0.0, 5.0) == "0 s"
    assert time_to_catch_up(10, 1.0, 1.0) == "never"
    assert time_to_catch_up(100, 30.0, 20.0) == "10 s"
    assert time_to_catch_up(7_200, 2.0, 1.0) == "2 h"
