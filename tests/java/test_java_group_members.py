"""The Java client in groups: members join, leave, crash, pause and return, with every rebalance
protocol.

The tests check the events that the members report. Run by `make test-java`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.e2e.penstock_process import PenstockProcess, running
from tests.java.verifiable_consumer import (
    HEARTBEAT_MS,
    SESSION_MS,
    JavaMember,
    assert_committed_offsets_never_go_back,
    assert_one_owner_at_a_time,
    revoked,
)

pytestmark = pytest.mark.java

PARTITIONS = 6
PATIENCE_S = 90.0
EAGER = ("--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor")
COOPERATIVE = (
    "--assignment-strategy",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
)
NEW = ("--group-protocol", "consumer")
SETTINGS = (
    f"group.consumer.min.heartbeat.interval.ms={HEARTBEAT_MS}",
    f"group.consumer.heartbeat.interval.ms={HEARTBEAT_MS}",
    f"group.consumer.min.session.timeout.ms={SESSION_MS}",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
    "group.consumer.assignment.interval.ms=0",
    "group.initial.rebalance.delay.ms=500",
)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(PenstockProcess(tmp_path_factory.mktemp("members"), *SETTINGS)) as process:
        yield process.bootstrap


class Group:
    """A topic, the members that consume it, and the records produced to it."""

    def __init__(self, bootstrap: str, directory: Path, name: str) -> None:
        self.bootstrap, self.directory, self.name = bootstrap, directory, name
        self.everyone: list[JavaMember] = []
        self.present: list[JavaMember] = []
        self._sent = 0
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)

    def join(self, count: int, *words: str) -> list[JavaMember]:
        names = [f"member-{len(self.everyone) + number}" for number in range(count)]
        came = [
            JavaMember(self.directory, self.bootstrap, self.name, self.name, name, *words)
            for name in names
        ]
        self.everyone += came
        self.present += came
        return came

    def leave(self, *members: JavaMember) -> None:
        for member in members:
            member.terminate()
        for member in members:
            member.ended()
            self.present.remove(member)

    def wait_shared(self) -> None:
        """Wait until every partition has one owner and the assignment is balanced."""

        def shared() -> bool:
            owned = [member.owned() for member in self.present]
            counts = [len(partitions) for partitions in owned]
            everything = frozenset().union(*owned) == frozenset(range(PARTITIONS))
            return everything and sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1

        wait_for(
            shared,
            lambda: (
                "the partitions are not assigned evenly: "
                f"{ {member.name: sorted(member.owned()) for member in self.present} }"
            ),
        )

    def produce(self, count: int = 10) -> None:
        """Produce records to every partition, and wait until the group has committed them."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(count * PARTITIONS):
            producer.produce(self.name, str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        self._sent += count
        wait_for(
            lambda: set(self.committed().values()) == {self._sent},
            lambda: f"{self.committed()} of {self._sent} committed",
        )

    def committed(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.name})
        try:
            found = consumer.committed(
                [TopicPartition(self.name, partition) for partition in range(PARTITIONS)],
                timeout=30,
            )
            return {partition.partition: partition.offset for partition in found}
        finally:
            consumer.close()

    def kind(self) -> ConsumerGroupType:
        kind: ConsumerGroupType = (
            self._admin.describe_consumer_groups([self.name])[self.name].result(30).type
        )
        return kind

    def set_session(self, milliseconds: int) -> None:
        """Set the session timeout of members of the consumer protocol."""
        entry = ConfigEntry(
            "consumer.session.timeout.ms",
            str(milliseconds),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.GROUP, self.name, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(30)

    def check(self) -> int:
        """Check all events; return how often a partition was assigned."""
        committed = [
            event
            for member in self.everyone
            for event in member.events()
            if event["name"] == "offsets_committed"
        ]
        assert_committed_offsets_never_go_back(committed)
        return assert_one_owner_at_a_time(self.everyone)

    def end(self) -> None:
        for member in self.everyone:
            member.kill()


@pytest.fixture
def group(bootstrap: str, tmp_path: Path) -> Iterator[Group]:
    group = Group(bootstrap, tmp_path, tmp_path.name)
    yield group
    group.end()


def wait_for(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


class Untouched:
    """Check, for incremental rebalances, that members keep the partitions that do not move."""

    def __init__(self, members: list[JavaMember]) -> None:
        self._before = {member: (len(member.events()), member.owned()) for member in members}

    def check(self) -> None:
        for member, (seen, owned) in self._before.items():
            kept = owned & member.owned()
            assert not kept & revoked(member.events()[seen:]), f"{member.name} kept {kept}"


@pytest.mark.parametrize(
    "words", [EAGER, COOPERATIVE, NEW], ids=["eager", "cooperative", "consumer"]
)
def test_partitions_have_one_owner_while_members_join_leave_crash_and_pause(
    group: Group, words: tuple[str, ...], record_property: Callable[[str, object], None]
) -> None:
    incremental = words != EAGER
    for size in (1, 3, 8, 2):
        untouched = Untouched(group.present[:size])
        if size > len(group.present):
            group.join(size - len(group.present), *words)
        else:
            group.leave(*group.present[size:])
        group.wait_shared()
        if incremental:
            untouched.check()
        group.produce()
    paused, other = group.present
    paused.pause()
    wait_for(
        lambda: len(other.owned()) == PARTITIONS,
        lambda: f"{other.owned()} after the other one's session",
    )
    group.produce()
    paused.resume()
    group.wait_shared()
    group.produce()
    other.kill()
    group.present.remove(other)
    group.wait_shared()
    group.produce()
    group.leave(*group.present)
    given_out = group.check()
    assert given_out > 3 * PARTITIONS
    record_property(
        "note",
        (
            f"Java members ({words[-1]}): partitions were given out {given_out} times, never to "
            "two "
            "members at once"
        ),
    )


@pytest.mark.parametrize(
    "words", [("--session-timeout", "30000"), NEW], ids=["classic", "consumer"]
)
def test_a_restarted_static_member_causes_no_rebalance(
    group: Group, words: tuple[str, ...]
) -> None:
    group.set_session(30_000)  # a JVM on a busy machine starts slowly
    (first,) = group.join(1, *words, "--group-instance-id", "first")
    (second,) = group.join(1, *words, "--group-instance-id", "second")
    group.wait_shared()
    group.produce()
    owned, seen = second.owned(), changes(first)
    group.leave(second)  # A static member sends no LeaveGroup.
    (again,) = group.join(1, *words, "--group-instance-id", "second")
    wait_for(lambda: again.owned() == owned, lambda: f"it owned {owned}, and now {again.owned()}")
    group.produce()
    assert changes(first) == seen
    group.leave(first, again)
    group.check()


def changes(member: JavaMember) -> list[str]:
    return [
        str(event)
        for event in member.events()
        if event["name"] in ("partitions_assigned", "partitions_revoked")
    ]


def test_a_live_group_migrates_to_the_consumer_protocol_and_back(group: Group) -> None:
    classic = group.join(2, *EAGER)
    group.wait_shared()
    assert group.kind() == ConsumerGroupType.CLASSIC
    new = group.join(2, *NEW)
    group.wait_shared()
    assert group.kind() == ConsumerGroupType.CONSUMER
    group.produce()
    group.leave(*classic)
    group.wait_shared()
    group.produce()
    group.join(1, *COOPERATIVE)
    group.wait_shared()
    assert group.kind() == ConsumerGroupType.CONSUMER
    group.produce()
    group.leave(*new)
    group.wait_shared()
    wait_for(lambda: group.kind() == ConsumerGroupType.CLASSIC, lambda: f"{group.kind()}")
    group.produce()
    group.leave(*group.present)
    group.check()
