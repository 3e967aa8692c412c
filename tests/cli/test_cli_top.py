"""penstock top: its rates, its order, its layout, its keys, and a broker that it asks."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from penstock import ids
from penstock.cli import build
from penstock.cli.session import CommandFailed
from penstock.cli.top.ask import Wanted
from penstock.cli.top.keys import split_keys
from penstock.cli.top.live import Live
from penstock.cli.top.looks import Looks, pause_s
from penstock.cli.top.rows import SORTS, rows_of
from penstock.cli.top.screen import (
    Limits,
    View,
    error_line,
    heading_lines,
    is_healthy,
    limits_for,
    plain_lines,
    sections,
)
from penstock.cli.top.snapshot import (
    LEADER,
    VOTER,
    Broker,
    Group,
    LogDirs,
    Partition,
    Quorum,
    QuorumReplica,
    Snapshot,
    Topic,
)
from penstock.client.client import Client
from penstock.client.errors import ConnectionFailed
from penstock.world.real import real_world

FIRST_ID, SECOND_ID = UUID(int=1), UUID(int=2)


def part(index: int, topic: str = "orders") -> ids.TopicPartition:
    return ids.TopicPartition(topic, index)


def snapshot(
    at_s: float,
    ends: Mapping[int, int],
    sizes: Mapping[int, Mapping[int, int]],
    *,
    leaders: tuple[int, ...] = (1, 2),
    topic_id: UUID = FIRST_ID,
    lag: int | None = None,
) -> Snapshot:
    """A topic with two partitions on the brokers 1 and 2; `sizes` is by broker and partition."""
    return Snapshot(
        at_s,
        "cluster",
        tuple(
            Broker(
                broker,
                f"host:{broker}",
                None,
                fenced=False,
                log_dirs=LogDirs(
                    1, 0, False, {part(index): size for index, size in of_broker.items()}
                ),
            )
            for broker, of_broker in sizes.items()
        ),
        (
            Topic(
                "orders", topic_id, tuple(Partition(leader, (1, 2), (1, 2)) for leader in leaders)
            ),
        ),
        (Group("billing", "Classic", "Stable", 1, lag),),
        1,
        Quorum(1, 3, {1: QuorumReplica(LEADER, 0), 2: QuorumReplica(VOTER, 7)}),
        {part(index): end for index, end in ends.items()},
    )


SIZES = {1: {0: 1_000, 1: 900}, 2: {0: 800, 1: 500}}
BEFORE = snapshot(10.0, {0: 100, 1: 50}, SIZES, lag=30)


def test_rates_are_what_leaders_appended_between_two_looks() -> None:
    now = snapshot(12.0, {0: 140, 1: 50}, {1: {0: 3_000}, 2: {1: 500}}, lag=10)
    rows = rows_of(now, BEFORE, "name")
    (topic,) = rows.topics
    assert (topic.messages_per_s, topic.bytes_per_s, topic.bytes) == (20, 1_000, 3_500)
    assert [(row.id, row.messages_per_s, row.bytes_per_s) for row in rows.brokers] == [
        (1, 20, 1_000),
        (2, 0, 0),
    ]
    assert rows.groups[0].lag_change_per_s == -10


@pytest.mark.parametrize(
    "before",
    [
        None,
        snapshot(10.0, {0: 100, 1: 50}, SIZES, topic_id=SECOND_ID),
        snapshot(12.0, {0: 100, 1: 50}, SIZES),
        snapshot(10.0, {}, {}),
    ],
    ids=["first look", "topic created again", "no time between", "no answer before"],
)
def test_there_is_no_rate_without_an_earlier_look_at_the_same_topic(
    before: Snapshot | None,
) -> None:
    now = snapshot(12.0, {0: 140, 1: 50}, SIZES, lag=10)
    rows = rows_of(now, before, "name")
    assert (rows.topics[0].messages_per_s, rows.topics[0].bytes_per_s) == (None, None)
    assert rows.groups[0].lag_change_per_s is None


def test_a_new_leader_and_retention_add_no_bytes() -> None:
    # Broker 2 now leads partition 0, and its log is larger; retention shrank partition 1.
    now = snapshot(12.0, {0: 100, 1: 50}, {1: {0: 1_000}, 2: {0: 9_000, 1: 100}}, leaders=(2, 2))
    (topic,) = rows_of(now, BEFORE, "name").topics
    assert (topic.bytes_per_s, topic.bytes) == (0, 9_100)


def topic(name: str, end: int, replicas: int = 2, leader: int = 1) -> Topic:
    return Topic(name, UUID(int=end), (Partition(leader, tuple(range(1, replicas + 1)), (1,)),))


def test_rows_sort_by_activity_then_by_name_and_unknown_numbers_are_last() -> None:
    topics = (topic("b", 5), topic("a", 5), topic("busy", 900), topic("silent", 1))
    ends = {part(0, each.name): each.id.int for each in topics if each.name != "silent"}
    before = Snapshot(0.0, "c", topics=topics, ends=dict.fromkeys(ends, 0))
    groups = (Group("x", "", "Empty"), Group("y", "", "Stable", 1, 5), Group("z", "", "", 1, 9))
    rows = rows_of(Snapshot(1.0, "c", (), topics, groups, 3, None, ends), before, "activity")
    assert [row.name for row in rows.topics] == ["busy", "a", "b", "silent"]
    assert [row.id for row in rows.groups] == ["z", "y", "x"]


def test_unhealthy_topics_come_first_on_request() -> None:
    topics = (topic("fine", 1, 1), topic("under", 2), topic("offline", 3, 1, leader=-1))
    rows = rows_of(Snapshot(1.0, "c", topics=topics), None, "unhealthy")
    assert [row.name for row in rows.topics] == ["offline", "under", "fine"]


@pytest.mark.parametrize(
    ("view", "height", "counts", "expected"),
    [
        (View.ALL, 24, (3, 100, 1_000), Limits(3, 6, 5)),
        (View.ALL, 24, (3, 2, 1_000), Limits(3, 2, 9)),
        (View.ALL, 24, (3, 100, 1), Limits(3, 10, 1)),
        (View.ALL, 40, (100, 100, 100), Limits(10, 10, 10)),
        (View.ALL, 5, (3, 100, 100), Limits(3, 0, 0)),
        (View.TOPICS, 24, (3, 100, 100), Limits(0, 18, 0)),
        (View.GROUPS, 3, (3, 100, 100), Limits(0, 0, 1)),
    ],
)
def test_rows_are_limited_to_the_height(
    view: View, height: int, counts: tuple[int, int, int], expected: Limits
) -> None:
    assert limits_for(view, height, *counts) == expected


def test_plain_text_has_the_states_the_error_and_how_many_rows_are_left_out() -> None:
    now = snapshot(12.0, {0: 140}, {1: {0: 3_000}}, lag=1_234)
    rows = rows_of(now, None, "activity")
    lines = plain_lines(
        heading_lines(now, "12:00:00"),
        sections(rows, Limits(1, 1, 1), View.ALL, 1_000),
        error_line(["broker 2: connection refused\x1b[2J", "b", "c", "d"]),
    )
    text = "\n".join(re.sub(" +", " ", line) for line in lines)
    assert "controller 1 epoch 3, slowest voter 7 records behind" in text
    assert "error: broker 2: connection refused?[2J; b; and 2 more" in text
    assert "GROUPS 1 of 1,000" in text
    assert "billing Classic Stable 1 1,234 -" in text
    assert "1 host:1 - live leader 0 1 2 3.0 KB 1 0 - -" in text


def test_a_fenced_or_silent_broker_and_an_offline_partition_are_unhealthy() -> None:
    assert is_healthy(BEFORE)
    fenced = Broker(1, "a", None, fenced=True)
    silent = Broker(1, "a", None, fenced=False, silent=True)
    assert not is_healthy(Snapshot(0, "", (fenced,)))
    assert not is_healthy(Snapshot(0, "", (silent,)))
    assert not is_healthy(Snapshot(0, "", topics=(topic("t", 1, leader=-1),)))


def test_a_slow_look_is_followed_by_a_pause_as_long() -> None:
    assert pause_s(2.0, 0.5) == 1.5
    assert pause_s(2.0, 5.0) == 5.0


def test_keys_are_read_in_bunches_and_unknown_sequences_are_left_out() -> None:
    assert split_keys(b"2\t\x1b[A\x1b[6~q") == ["2", "tab", "up", "page down", "q"]
    assert split_keys(b"s\x1b[99X") == ["s"]


def test_a_filter_matches_a_part_of_the_name() -> None:
    assert Wanted(pattern=re.compile("ord")).matches("orders")
    assert not Wanted(pattern=re.compile("^rd")).matches("orders")


# The live view


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Looks that see BEFORE, then that no broker answers."""
    answers = [BEFORE]

    async def ask(_client: object, _forwarded: object, _wanted: Wanted) -> Snapshot:
        if not answers:
            raise ConnectionFailed("cannot connect to host:1: connection refused")
        return answers.pop()

    monkeypatch.setattr("penstock.cli.top.looks.ask", ask)
    client = cast("Client", SimpleNamespace(cluster=SimpleNamespace(world=real_world())))
    return Looks(client, client, "activity", None)


def test_a_look_that_fails_keeps_the_last_answer_and_says_why(
    looks: Looks, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(looks.look(Wanted()))
    looks.check()
    asyncio.run(looks.look(Wanted()))
    looks.print_text(10)
    shown = capsys.readouterr().out
    assert "error: this is the last answer: cannot connect to host:1" in shown
    assert "billing" in shown
    assert looks.as_object(10)["topics"] == []
    assert looks.as_object(10)["errors"] == ["cannot connect to host:1: connection refused"]
    with pytest.raises(CommandFailed, match="connection refused"):
        looks.check()


def test_a_view_asks_only_for_what_it_shows(looks: Looks) -> None:
    live = Live(looks, 1.0, None)
    assert (live.wanted().partitions, live.wanted().groups) == (True, True)
    live.press("2")
    assert (live.wanted().partitions, live.wanted().groups) == (True, False)
    live.press("tab")
    assert (live.wanted().partitions, live.wanted().groups) == (False, True)
    live.press("tab")
    assert live.wanted().partitions


def test_groups_are_asked_for_from_the_first_that_is_shown(looks: Looks) -> None:
    live = Live(looks, 1.0, None)
    asyncio.run(looks.look(live.wanted()))
    looks.now = replace(BEFORE, group_count=1_000)
    live.press("3")
    assert (live.wanted().first_group, live.wanted().max_groups) == (0, 18)
    live.press("page down")
    live.press("down")
    assert live.wanted().first_group == 19
    for _ in range(100):
        live.press("page down")
    assert live.wanted().first_group == 999
    for _ in range(100):
        live.press("page up")
    assert live.wanted().first_group == 0


def test_s_changes_the_order(looks: Looks) -> None:
    live = Live(looks, 1.0, None)
    for _ in SORTS:
        before = looks.sort
        live.press("s")
        assert looks.sort != before
    assert looks.sort == "activity"


# With a broker


@pytest.fixture(scope="module")
def workload(bootstrap: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic("orders", 2), NewTopic("other", 1)]).values():
        created.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce("orders", value=b"x", partition=number % 2)
    assert producer.flush(10) == 0
    offsets = [TopicPartition("orders", 0, 2), TopicPartition("orders", 1, 5)]
    altered = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("billing", offsets)])
    altered["billing"].result()
    return bootstrap


def test_once_prints_one_json_object_with_brokers_topics_and_lag(workload: str) -> None:
    done = CliRunner().invoke(
        build("top"),
        ["top", "--once", "--json", "--interval", "0.1", "--bootstrap-server", workload],
    )
    assert done.exit_code == 0, done.stderr
    (line,) = done.stdout.splitlines()
    seen = json.loads(line)
    (broker,) = seen["brokers"]
    assert (broker["state"], broker["quorum"], broker["offline_log_dirs"]) == ("live", "leader", 0)
    assert broker["replicas"] == broker["leaders"] == seen["totals"]["partitions"]
    topics = {each["name"]: each for each in seen["topics"]}
    assert topics["orders"]["partitions"] == 2
    assert topics["orders"]["bytes"] > 0
    assert (topics["orders"]["messages_per_s"], topics["orders"]["under_replicated"]) == (0, 0)
    (group,) = seen["groups"]
    assert (group["id"], group["state"], group["lag"]) == ("billing", "Empty", 3)
    assert group["lag_change_per_s"] == 0
    assert seen["errors"] == []


def test_once_prints_plain_text_and_only_what_matches_the_filter(workload: str) -> None:
    words = ["--once", "--interval", "0.1", "--filter", "^other$", "--bootstrap-server", workload]
    done = CliRunner().invoke(build("top"), ["top", *words])
    assert done.exit_code == 0, done.stderr
    assert re.search(r"^other  +1 ", done.stdout, re.MULTILINE)
    assert "orders" not in done.stdout
    assert "GROUPS 0" in done.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--sort", "colour"], "'colour' is not one of activity"),
        (["--filter", "("], "is not a regular expression"),
        (["--once", "--bootstrap-server", "127.0.0.1:1"], "cannot connect to 127.0.0.1:1"),
    ],
)
def test_a_wrong_option_or_address_fails_in_one_line(words: list[str], reason: str) -> None:
    done = CliRunner().invoke(build("top"), ["top", *words])
    assert done.exit_code == 1
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
