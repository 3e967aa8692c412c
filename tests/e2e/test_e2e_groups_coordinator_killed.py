"""Kill -9 of a group's coordinator under load: no committed offset goes back, vanishes or reads as
0, and the group recovers within seconds. Checked against the members' acknowledged commits, and by
a client that fetches the offsets continuously."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.node.shards.shard_set import positive_hash
from tests.compat.group_clients import (
    ConfluentMember,
    Event,
    Member,
    check_one_owner,
    wait_for,
    wait_shared,
)
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")
TOPIC, GROUP = "watched", "watchers"
PARTITIONS = 6
# From the kill to the next acknowledged commit. On a quiet machine it takes less than two seconds.
RECOVERS_WITHIN_S = 15.0


class Load:
    """Produces a little to every partition until `stop`."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.02):
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, b"x", partition=partition)
            self._producer.poll(0)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


class Watcher:
    """Fetches the committed offsets continuously, and compares them with the commits that were
    acknowledged before."""

    def __init__(self, bootstrap: str, members: list[Member]) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._members = members
        self._stopping = threading.Event()
        self._seen: dict[int, int] = {}
        self.looks = 0
        self.wrong: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            least = acknowledged(self._members)
            for partition, offset in self._seen.items():
                least[partition] = max(least.get(partition, 0), offset)
            try:
                self._look(least)
            except KafkaException as error:
                if not passes(error.args[0]):
                    self.wrong.append(str(error))

    def _look(self, least: dict[int, int]) -> None:
        committed = self._consumer.committed(
            [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)], timeout=1.0
        )
        self.looks += 1
        for fetched in committed:
            if fetched.error is None:
                if fetched.offset < least.get(fetched.partition, fetched.offset):
                    self.wrong.append(
                        f"partition {fetched.partition} reads as {fetched.offset} after "
                        f"{least[fetched.partition]} was acknowledged"
                    )
                if fetched.offset >= 0:
                    self._seen[fetched.partition] = fetched.offset

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()


def passes(error: KafkaError) -> bool:
    """Return True for errors that occur while a coordinator moves, the client's own included.
    librdkafka does not count NOT_COORDINATOR as retriable."""
    return error.code() == KafkaError.NOT_COORDINATOR or error.retriable() or error.code() < 0


def commits(members: list[Member]) -> list[Event]:
    return [
        event for member in members for event in list(member.events) if event.kind == "committed"
    ]


def acknowledged(members: list[Member]) -> dict[int, int]:
    reached: dict[int, int] = {}
    for event in commits(members):
        (partition,) = event.partitions
        reached[partition] = max(reached.get(partition, 0), event.offset)
    return reached


def test_no_committed_offset_is_lost_and_the_group_recovers(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path)) as cluster:
        cluster.create_topic(TOPIC, [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2, min_insync_replicas="2")
        quick = {
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 500,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
        }
        members: list[Member] = [
            ConfluentMember(cluster.bootstrap, TOPIC, GROUP, f"member-{number}", **quick)
            for number in range(2)
        ]
        load, watcher = Load(cluster.bootstrap), Watcher(cluster.bootstrap, members)
        try:
            wait_shared(members, PARTITIONS)
            wait_for(
                lambda: len(commits(members)) > 100, lambda: f"{len(commits(members))} commits"
            )
            index = positive_hash(GROUP) % 50
            victim = cluster.partition("__consumer_offsets", index).leader
            cluster.nodes("kill", str(victim))
            killed = time.monotonic()
            wait_for(
                lambda: any(event.at > killed + 0.5 for event in commits(members)),
                lambda: "no commit after the kill",
            )
            went_on = (
                min(event.at for event in commits(members) if event.at > killed + 0.5) - killed
            )
            assert went_on < RECOVERS_WITHIN_S
            so_far = len(commits(members))
            wait_for(
                lambda: len(commits(members)) > so_far + 100,
                lambda: f"{len(commits(members))} commits",
            )
            assert cluster.partition("__consumer_offsets", index).leader != victim
            wait_shared(members, PARTITIONS)
            cluster.nodes("restart", str(victim))
            load.stop()
        finally:
            for member in members:
                member.leave()
            watcher.stop()
        assert not watcher.wrong
        assert watcher.looks > 10
        check_one_owner(members)
