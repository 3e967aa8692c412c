"""The consumer protocol (KIP-848) with confluent-kafka: incremental assignment by the broker, and
online migration from and to the classic protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.group_clients import (
    ConfluentMember,
    Member,
    check_commits_never_decrease,
    check_one_owner,
    wait_for,
    wait_shared,
)
from tests.e2e.penstock_process import PenstockProcess, running

PARTITIONS = 6
NEW = {"group.protocol": "consumer"}
SETTINGS = (
    "group.min.session.timeout.ms=1000",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=200",
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=5000",
    "group.consumer.assignment.interval.ms=0",
)
_names = itertools.count()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(
        PenstockProcess(tmp_path_factory.mktemp("consumer-groups"), *SETTINGS, port=0)
    ) as process:
        yield process.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"consumer-groups-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(60):
        producer.produce(name, b"x", partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return name


def described(bootstrap: str, group: str) -> tuple[ConsumerGroupType, ConsumerGroupState, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    description = admin.describe_consumer_groups([group])[group].result(30)
    return description.type, description.state, len(description.members)


def test_partitions_are_reassigned_when_members_join_and_leave(bootstrap: str, topic: str) -> None:
    everyone: list[Member] = []
    present: list[Member] = []
    for size in (1, 4, 8, 2):
        while len(present) < size:
            present.append(
                ConfluentMember(bootstrap, topic, topic, f"member-{len(everyone)}", **NEW)
            )
            everyone.append(present[-1])
        while len(present) > size:
            present.pop(0).leave()
        wait_shared(present, PARTITIONS)
    assert described(bootstrap, topic) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE, 2)
    for member in present:
        member.leave()
    check_one_owner(everyone)
    check_commits_never_decrease(everyone)


def test_only_partitions_that_move_are_revoked(bootstrap: str, topic: str) -> None:
    first = ConfluentMember(bootstrap, topic, topic, "first", **NEW)
    wait_shared([first], PARTITIONS)
    second = ConfluentMember(bootstrap, topic, topic, "second", **NEW)
    wait_shared([first, second], PARTITIONS)
    revoked = [event.partitions for event in first.events if event.kind == "revoked"]
    assert frozenset().union(*revoked) == second.owned
    first.leave()
    second.leave()


def test_a_live_group_migrates_to_the_consumer_protocol_and_back(
    bootstrap: str, topic: str
) -> None:
    classic: list[Member] = [
        ConfluentMember(bootstrap, topic, topic, f"classic-{number}") for number in range(2)
    ]
    wait_shared(classic, PARTITIONS)
    assert described(bootstrap, topic)[0] == ConsumerGroupType.CLASSIC
    new: list[Member] = [
        ConfluentMember(bootstrap, topic, topic, f"new-{number}", **NEW) for number in range(2)
    ]
    wait_shared(classic + new, PARTITIONS)
    assert described(bootstrap, topic)[0] == ConsumerGroupType.CONSUMER
    for member in classic:
        member.leave()
    wait_shared(new, PARTITIONS)
    again: list[Member] = [ConfluentMember(bootstrap, topic, topic, "classic-again")]
    wait_shared(new + again, PARTITIONS)
    for member in new:
        member.leave()
    wait_shared(again, PARTITIONS)
    wait_for(
        lambda: described(bootstrap, topic)[0] == ConsumerGroupType.CLASSIC,
        lambda: f"{described(bootstrap, topic)}",
    )
    again[0].leave()
    check_one_owner(classic + new + again)
    check_commits_never_decrease(classic + new + again)


def test_the_broker_resolves_a_regular_expression_of_topics(bootstrap: str, topic: str) -> None:
    member = ConfluentMember(bootstrap, f"^{topic}$", topic, "by-pattern", **NEW)
    wait_shared([member], PARTITIONS)
    member.leave()
