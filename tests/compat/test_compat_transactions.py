"""Transactions with unmodified clients, on one broker and on three: commit, abort, fencing,
timeout, many partitions, and the offsets of a group.

A commit returns when its outcome is decided; markers follow. So the tests wait until the last
stable offsets are the high watermarks, and then read once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.transaction_clients import (
    DEADLINE_S,
    AiokafkaTransactions,
    ConfluentTransactions,
    KafkaPythonTransactions,
    TransactionClient,
    create_topic,
)
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import PenstockProcess, running

CLIENTS: dict[str, type[TransactionClient]] = {
    "confluent-kafka": ConfluentTransactions,
    "kafka-python": KafkaPythonTransactions,
    "aiokafka": AiokafkaTransactions,
}
SHORT_TIMEOUT_MS = 1_000
MANY = 40
# Apache Kafka looks for expired transactions every 10 s by default.
SETTINGS = ("transaction.abort.timed.out.transaction.cleanup.interval.ms=200",)


class Topic(NamedTuple):
    """A topic and the client that the test uses."""

    client: TransactionClient
    name: str
    partitions: int

    def wait_stable(self) -> None:
        """Wait until no transaction is open in any partition."""
        wait_for(
            lambda: self.end(committed=True) == self.end(committed=False),
            lambda: f"{self.end(committed=True)} of {self.end(committed=False)}",
        )

    def end(self, *, committed: bool) -> dict[int, int]:
        return self.client.end_offsets(self.name, self.partitions, committed=committed)

    def read(self, *, committed: bool = True) -> dict[int, list[bytes]]:
        return self.client.read(self.name, self.partitions, committed=committed)


def in_each(partitions: int, *values: bytes) -> dict[int, list[bytes]]:
    return {partition: list(values) for partition in range(partitions)}


def wait_for(condition: Callable[[], bool], seen: Callable[[], str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, seen()
        time.sleep(0.02)


BROKERS = [
    pytest.param(1, marks=pytest.mark.xdist_group("transactions"), id="one-broker"),
    pytest.param(3, marks=pytest.mark.xdist_group("cluster"), id="three-brokers"),
]


@pytest.fixture(scope="module", params=BROKERS)
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A cluster of Penstock, or the one that PENSTOCK_COMPAT_BOOTSTRAP names."""
    given = os.environ.get("PENSTOCK_COMPAT_BOOTSTRAP")
    if given:
        found = AdminClient({"bootstrap.servers": given}).list_topics(timeout=DEADLINE_S).brokers
        if len(found) != request.param:
            pytest.skip(f"the given cluster has {len(found)} broker(s)")
        yield given
    elif request.param == 1:
        directory = tmp_path_factory.mktemp("transactions")
        with running(PenstockProcess(directory, *SETTINGS, port=0)) as process:
            yield process.bootstrap
    else:
        with running(PenstockCluster(tmp_path_factory.mktemp("transactions"), *SETTINGS)) as three:
            yield three.bootstrap


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[TransactionClient]:
    made = CLIENTS[request.param](bootstrap)
    yield made
    made.close()


@pytest.fixture
def topic(client: TransactionClient) -> Topic:
    return new_topic(client, 3)


def new_topic(client: TransactionClient, partitions: int) -> Topic:
    name = f"transactions-{uuid4().hex[:8]}"
    create_topic(client.bootstrap, name, partitions)
    return Topic(client, name, partitions)


def new_id() -> str:
    return f"id-{uuid4().hex[:8]}"


def test_committed_records_become_visible(client: TransactionClient, topic: Topic) -> None:
    producer = client.producer(new_id())
    first, second = {0: [b"a"], 1: [b"b"]}, {0: [b"c", b"d"], 2: [b"e"]}
    producer.begin()
    producer.send(topic.name, first)
    assert topic.read(committed=False) == {0: [b"a"], 1: [b"b"], 2: []}
    assert topic.read() == {0: [], 1: [], 2: []}
    assert topic.end(committed=True) == {0: 0, 1: 0, 2: 0}
    producer.commit()
    topic.wait_stable()
    assert topic.read() == {0: [b"a"], 1: [b"b"], 2: []}
    producer.begin()
    producer.send(topic.name, second)
    assert topic.end(committed=True) == {0: 2, 1: 2, 2: 0}
    producer.commit()
    topic.wait_stable()
    assert topic.read() == {0: [b"a", b"c", b"d"], 1: [b"b"], 2: [b"e"]}


def test_aborted_records_are_never_visible(client: TransactionClient, topic: Topic) -> None:
    producer = client.producer(new_id())
    for number in range(6):
        producer.begin()
        producer.send(topic.name, in_each(3, b"%d" % number))
        producer.commit() if number % 2 else producer.abort()
    topic.wait_stable()
    assert topic.read() == in_each(3, b"1", b"3", b"5")
    assert topic.read(committed=False) == in_each(3, b"0", b"1", b"2", b"3", b"4", b"5")
    # Each transaction has a record and a marker in each partition.
    assert topic.end(committed=False) == dict.fromkeys(range(3), 12)


def test_records_after_an_open_transaction_wait_for_it(
    client: TransactionClient, topic: Topic
) -> None:
    slow, quick = client.producer(new_id()), client.producer(new_id())
    slow.begin()
    slow.send(topic.name, {0: [b"slow"]})
    quick.begin()
    quick.send(topic.name, {0: [b"quick"], 1: [b"quick"]})
    quick.commit()
    wait_for(lambda: topic.end(committed=True)[1] == 2, lambda: f"{topic.end(committed=True)}")
    assert topic.read() == {0: [], 1: [b"quick"], 2: []}
    assert topic.read(committed=False)[0] == [b"slow", b"quick"]
    slow.abort()
    topic.wait_stable()
    assert topic.read() == {0: [b"quick"], 1: [b"quick"], 2: []}


def test_a_new_producer_fences_the_old_one(client: TransactionClient, topic: Topic) -> None:
    transactional_id = new_id()
    zombie = client.producer(transactional_id)
    zombie.begin()
    zombie.send(topic.name, {0: [b"zombie"], 1: [b"zombie"]})
    successor = client.producer(transactional_id)
    topic.wait_stable()
    successor.begin()
    successor.send(topic.name, {0: [b"successor"]})
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each client has its own
        zombie.commit()
    assert client.is_fenced(raised.value), repr(raised.value)
    successor.commit()
    topic.wait_stable()
    assert topic.read() == {0: [b"successor"], 1: [], 2: []}


def test_a_zombie_cannot_write_into_its_successors_transaction(
    client: TransactionClient, topic: Topic
) -> None:
    transactional_id = new_id()
    zombie = client.producer(transactional_id)
    zombie.begin()
    zombie.send(topic.name, {0: [b"zombie"]})
    successor = client.producer(transactional_id)
    successor.begin()
    successor.send(topic.name, {0: [b"successor"]})
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each client has its own
        zombie.send(topic.name, {0: [b"zombie, later"], 1: [b"zombie, later"]})
    assert raised.type is not AssertionError, "neither acknowledged nor refused"
    successor.commit()
    topic.wait_stable()
    assert topic.read() == {0: [b"successor"], 1: [], 2: []}
    assert topic.read(committed=False) == {0: [b"zombie", b"successor"], 1: [], 2: []}


def test_a_transaction_is_aborted_at_its_timeout(client: TransactionClient, topic: Topic) -> None:
    transactional_id = new_id()
    late = client.producer(transactional_id, SHORT_TIMEOUT_MS)
    late.begin()
    late.send(topic.name, {0: [b"late"], 1: [b"late"]})
    topic.wait_stable()
    assert topic.read() == {0: [], 1: [], 2: []}
    assert topic.end(committed=True) == {0: 2, 1: 2, 2: 0}
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each client has its own
        late.commit()
    assert client.is_fenced(raised.value), repr(raised.value)
    successor = client.producer(transactional_id)
    successor.begin()
    successor.send(topic.name, {0: [b"in time"]})
    successor.commit()
    topic.wait_stable()
    assert topic.read() == {0: [b"in time"], 1: [], 2: []}


def test_many_partitions_and_the_offsets_of_a_group(client: TransactionClient) -> None:
    topic, source, group = new_topic(client, MANY), new_topic(client, 4), f"group-{uuid4().hex[:8]}"
    producer = client.producer(new_id())

    def copy(values: list[bytes], offsets: dict[int, int]) -> None:
        producer.begin()
        producer.send(topic.name, in_each(MANY, *values))
        producer.send_offsets(group, source.name, offsets)

    def offsets() -> dict[int, int | None]:
        return client.committed_offsets(group, source.name, source.partitions)

    copy([b"a", b"b"], {0: 10, 1: 20})
    assert offsets() == {0: None, 1: None, 2: None, 3: None}
    producer.commit()
    wait_for(lambda: offsets() == {0: 10, 1: 20, 2: None, 3: None}, lambda: f"{offsets()}")
    topic.wait_stable()
    assert topic.read() == in_each(MANY, b"a", b"b")
    copy([b"aborted"], {0: 11, 2: 30})
    producer.abort()
    topic.wait_stable()
    copy([b"c"], {1: 21, 3: 40})
    assert offsets() == {0: 10, 1: 20, 2: None, 3: None}
    producer.commit()
    wait_for(lambda: offsets() == {0: 10, 1: 21, 2: None, 3: 40}, lambda: f"{offsets()}")
    topic.wait_stable()
    assert topic.read() == in_each(MANY, b"a", b"b", b"c")


def test_every_client_fences_the_others_and_reads_their_transactions(bootstrap: str) -> None:
    clients = [*(made(bootstrap) for made in CLIENTS.values()), ConfluentTransactions(bootstrap)]
    transactional_id, topic = new_id(), new_topic(clients[0], 2)
    zombies = []
    try:
        for number, client in enumerate(clients):
            producer = client.producer(transactional_id)
            producer.begin()
            producer.send(topic.name, {0: [b"committed %d" % number]})
            producer.commit()
            producer.begin()
            producer.send(topic.name, {0: [b"left open"], 1: [b"left open"]})
            zombies.append((client, producer))
        zombies.pop()[1].abort()
        for client, zombie in zombies:
            with pytest.raises(Exception) as raised:  # noqa: PT011 - each client has its own
                zombie.commit()
            assert client.is_fenced(raised.value), repr(raised.value)
        topic.wait_stable()
        expected = {0: [b"committed %d" % number for number in range(len(clients))], 1: []}
        for client in clients:
            assert client.read(topic.name, 2, committed=True) == expected
    finally:
        for client in clients:
            client.close()
