"""Consumer groups with unmodified clients: members join, leave, crash and return, and each
partition has one owner at a time.

The tests check the events that the consumers report.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.group_clients import (
    SESSION_MS,
    AiokafkaMember,
    ConfluentMember,
    KafkaPythonMember,
    Member,
    check_commits_never_decrease,
    check_one_owner,
    wait_for,
    wait_shared,
)
from tests.e2e.penstock_process import PenstockProcess, running

PARTITIONS = 6
CLIENTS = [ConfluentMember, KafkaPythonMember, AiokafkaMember]
_names = itertools.count()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that allows short sessions, so that crashes are detected soon."""
    with running(
        PenstockProcess(
            tmp_path_factory.mktemp("groups"), "group.min.session.timeout.ms=1000", port=0
        )
    ) as process:
        yield process.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"groups-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    produce(bootstrap, name, 5)
    return name


def produce(bootstrap: str, topic: str, count: int) -> None:
    """Produce `count` records to every partition."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(PARTITIONS):
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(30) == 0


def committed(bootstrap: str, topic: str, group: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        offsets = consumer.committed(
            [TopicPartition(topic, partition) for partition in range(PARTITIONS)], timeout=30
        )
        return {partition.partition: partition.offset for partition in offsets}
    finally:
        consumer.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_everything_is_consumed_while_members_join_and_leave(
    bootstrap: str, topic: str, client: type[Member]
) -> None:
    everyone: list[Member] = []
    present: list[Member] = []
    sent = 5
    try:
        for size in (1, 3, 8, 2):
            while len(present) < size:
                present.append(client(bootstrap, topic, topic, f"member-{len(everyone)}"))
                everyone.append(present[-1])
            while len(present) > size:
                present.pop(0).leave()
            wait_shared(present, PARTITIONS)
            produce(bootstrap, topic, 5)
            sent += 5
        wait_for(
            lambda: _reached(everyone) == dict.fromkeys(range(PARTITIONS), sent),
            lambda: f"committed: {_reached(everyone)}",
        )
    finally:
        for member in present:
            member.leave()
    check_one_owner(everyone)
    check_commits_never_decrease(everyone)
    assert committed(bootstrap, topic, topic) == dict.fromkeys(range(PARTITIONS), sent)


def _reached(members: list[Member]) -> dict[int, int]:
    reached: dict[int, int] = {}
    for event in (
        event for member in members for event in list(member.events) if event.kind == "committed"
    ):
        (partition,) = event.partitions
        reached[partition] = max(reached.get(partition, 0), event.offset)
    return reached


def test_different_clients_share_a_group(bootstrap: str, topic: str) -> None:
    """The clients use the only assignor that all of them have."""
    members: list[Member] = [
        ConfluentMember(
            bootstrap, topic, topic, "confluent", **{"partition.assignment.strategy": "roundrobin"}
        ),
        KafkaPythonMember(
            bootstrap,
            topic,
            topic,
            "kafka-python",
            partition_assignment_strategy=[_kafka_python_roundrobin()],
        ),
        AiokafkaMember(bootstrap, topic, topic, "aiokafka"),
    ]
    try:
        wait_shared(members, PARTITIONS)
    finally:
        for member in members:
            member.leave()
    check_one_owner(members)


def _kafka_python_roundrobin() -> object:
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    return RoundRobinPartitionAssignor


class MemberProcess:
    """A member in its own process, which prints its partitions whenever they change."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        code = (
            f"from tests.compat.test_compat_groups import run_member; run_member({bootstrap!r}, "
            f"{topic!r}, {group!r})"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
        )

    def wait_owns(self, minimum: int) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if len(re.findall(r"\d+", line)) >= minimum:
                return
        raise AssertionError("the member ended")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def run_member(bootstrap: str, topic: str, group: str) -> None:
    member = ConfluentMember(bootstrap, topic, group, "in-a-process")
    owned: frozenset[int] = frozenset()
    while member.error is None:
        if member.owned != owned:
            owned = member.owned
            sys.stdout.write(f"{sorted(owned)}\n")
            sys.stdout.flush()
        time.sleep(0.02)
    raise member.error


def test_the_partitions_of_a_killed_member_are_reassigned(bootstrap: str, topic: str) -> None:
    doomed = MemberProcess(bootstrap, topic, topic)
    try:
        doomed.wait_owns(PARTITIONS)
        member = ConfluentMember(bootstrap, topic, topic, "survivor")
        doomed.wait_owns(3)
        wait_for(lambda: len(member.owned) == 3, lambda: f"the survivor owns {member.owned}")
        doomed.process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        wait_shared([member], PARTITIONS)
        assert time.monotonic() - killed < SESSION_MS / 1000 + 20
        member.leave()
        check_commits_never_decrease([member])
    finally:
        doomed.end()


def test_a_member_paused_past_its_session_cannot_commit(bootstrap: str, topic: str) -> None:
    """Its session times out and another member owns its partitions; its late commit is refused."""
    paused = MemberProcess(bootstrap, topic, topic)
    try:
        paused.wait_owns(PARTITIONS)
        wait_for(
            lambda: set(committed(bootstrap, topic, topic).values()) == {5},
            lambda: "not all records were consumed",
        )
        os.kill(paused.process.pid, signal.SIGSTOP)
        member = ConfluentMember(bootstrap, topic, topic, "next")
        wait_shared([member], PARTITIONS)
        produce(bootstrap, topic, 20)
        wait_for(
            lambda: set(committed(bootstrap, topic, topic).values()) == {25},
            lambda: "the next owner did not continue",
        )
        os.kill(paused.process.pid, signal.SIGCONT)
        paused.wait_owns(3)  # It has rejoined with another member id.
        assert set(committed(bootstrap, topic, topic).values()) == {25}
        member.leave()
        check_commits_never_decrease([member])
    finally:
        paused.end()


def test_a_restarted_static_member_causes_no_rebalance(bootstrap: str, topic: str) -> None:
    slow = {"session.timeout.ms": 30_000}

    def static(number: int) -> ConfluentMember:
        return ConfluentMember(
            bootstrap,
            topic,
            topic,
            f"static-{number}",
            **{"group.instance.id": f"instance-{number}", **slow},
        )

    first, second = static(1), static(2)
    wait_shared([first, second], PARTITIONS)
    owned, seen = (
        second.owned,
        len(
            [event for event in first.events if event.kind != "read" and event.kind != "committed"]
        ),
    )
    second.leave()  # A static member sends no LeaveGroup.
    again = static(2)
    wait_for(lambda: again.owned == owned, lambda: f"it owned {owned}, and now {again.owned}")
    assert (
        len([event for event in first.events if event.kind != "read" and event.kind != "committed"])
        == seen
    )
    before, after = (
        [event.generation for event in member.events if event.kind == "assigned"]
        for member in (second, again)
    )
    assert after == before[-1:]
    first.leave()
    again.leave()


def test_a_cooperative_rebalance_revokes_only_partitions_that_move(
    bootstrap: str, topic: str
) -> None:
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    members: list[Member] = [ConfluentMember(bootstrap, topic, topic, "first", **cooperative)]
    wait_shared(members, PARTITIONS)
    first = members[0]
    began = time.monotonic()
    members += [
        ConfluentMember(bootstrap, topic, topic, f"later-{number}", **cooperative)
        for number in range(2)
    ]
    while (
        sum(len(member.owned) for member in members) != PARTITIONS
        or min(len(member.owned) for member in members) != 2
    ):
        produce(bootstrap, topic, 1)  # There is always something to consume.
        time.sleep(0.02)
        assert time.monotonic() - began < 40
    kept = first.owned
    revoked = frozenset().union(
        *(
            event.partitions
            for event in first.events
            if event.kind == "revoked" and event.at > began
        )
    )
    assert revoked == frozenset(range(PARTITIONS)) - kept, (
        "partitions that did not move were revoked"
    )
    assert any(
        event.kind == "read" and event.partitions <= kept and event.at > began
        for event in first.events
    )
    for member in members:
        member.leave()
    check_one_owner(members)
    check_commits_never_decrease(members)
