"""Measure failovers: `kill -9` of a partition leader until the next acknowledged record, and of
the active controller until the next topic is created.

The client is librdkafka. The measuring thread sends the signal itself, between two polls, so that
no process start is part of the time.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from uuid import uuid4

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.cluster_peers import BROKERS, ClusterPeer
from bench.cluster_state import create_topic, partitions, quorum, wait_healthy
from bench.peer import EAGER
from penstock.client.metadata import PartitionInfo

WARM_UP_S = 1.0
POLL_S = 0.005
FAILOVER_TIMEOUT_S = 120.0
NO_LEADER = -1
# A metadata request that takes longer went to the killed broker.
METADATA_TIMEOUT_S = 0.1
# Settings with which the client adds little waiting time.
TUNED: Mapping[str, str | int | bool] = MappingProxyType(
    {
        "linger.ms": 0,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 50,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 50,
        "topic.metadata.refresh.fast.interval.ms": 50,
        "enable.idempotence": True,
    }
)
DEFAULTS: Mapping[str, str | int | bool] = MappingProxyType({})


@dataclass(frozen=True)
class Failovers:
    """The results of all rounds in milliseconds.

    `times` ends at the next acknowledgement, `elected` when polled metadata names the new leader;
    a producer learns of it later, when its library refreshes metadata. `controllers` counts the
    rounds that killed the active controller.
    """

    times: list[float]
    elected: list[float]
    controllers: int


def leader_failovers(
    peer: ClusterPeer, rounds: int, settings: Mapping[str, str | int | bool]
) -> Failovers:
    """Kill a partition leader per round; in every second round it is the active controller.

    Each round starts with all replicas in sync and preferred leaders leading.
    """
    topic = f"failover-{uuid4().hex[:8]}"
    create_topic(peer.bootstrap, topic, [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
    failovers = Failovers([], [], rounds // 2)
    for number in range(rounds):
        wait_healthy(peer.bootstrap, BROKERS)
        active = quorum(peer.bootstrap).leader_id
        partition = next(
            info
            for info in partitions(peer.bootstrap, topic)
            if (info.leader == active) == (number % 2 == 1)
        )
        acknowledged_ms, elected_ms = _leader_failover(peer, topic, partition, settings)
        failovers.times.append(acknowledged_ms)
        failovers.elected.append(elected_ms)
        peer.restart(partition.leader)
    wait_healthy(peer.bootstrap, BROKERS)
    return failovers


def controller_failovers(peer: ClusterPeer, rounds: int) -> Failovers:
    """Kill the active controller per round; the controllers are dedicated nodes."""
    times = []
    for _number in range(rounds):
        wait_healthy(peer.bootstrap, BROKERS)
        active = quorum(peer.bootstrap).leader_id
        times.append(_controller_failover(peer, peer.pids()[active]))
        peer.restart(active)
    return Failovers(times, [], rounds)


class Writer:
    """The producer of one partition. Only the next leader can acknowledge a record sent after the
    kill."""

    def __init__(
        self, bootstrap: str, topic: str, partition: int, settings: Mapping[str, str | int | bool]
    ) -> None:
        self.acknowledged = 0
        self.after_kill_at: float | None = None
        self._killed = False
        self._topic, self._partition = topic, partition
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, **settings}
        )

    def send(self) -> None:
        self._producer.produce(
            self._topic,
            b"record",
            partition=self._partition,
            on_delivery=partial(self._delivered, self._killed),
        )
        self._producer.poll(POLL_S)

    def kill(self, pid: int) -> float:
        os.kill(pid, signal.SIGKILL)
        killed_at = time.perf_counter()
        self._producer.poll(POLL_S)  # The signal takes a moment to be delivered.
        self._killed = True
        return killed_at

    def close(self) -> None:
        self._producer.flush(FAILOVER_TIMEOUT_S)

    def _delivered(
        self, sent_after_kill: bool, error: KafkaError | None, _message: Message
    ) -> None:
        if error is not None:
            raise KafkaException(error)
        self.acknowledged += 1
        if sent_after_kill and self.after_kill_at is None:
            self.after_kill_at = time.perf_counter()


class LeaderWatch(threading.Thread):
    """Polls metadata with its own client until a partition has another leader."""

    def __init__(self, bootstrap: str, topic: str, partition: PartitionInfo) -> None:
        super().__init__(daemon=True)
        self.elected_at = 0.0
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **EAGER})
        self._topic, self._partition = topic, partition

    def run(self) -> None:
        while self._leader() in (NO_LEADER, self._partition.leader):
            time.sleep(POLL_S)
        self.elected_at = time.perf_counter()

    def _leader(self) -> int:
        with suppress(KafkaException):
            partitions = (
                self._admin.list_topics(self._topic, timeout=METADATA_TIMEOUT_S)
                .topics[self._topic]
                .partitions
            )
            return int(partitions[self._partition.index].leader)
        return NO_LEADER


def _leader_failover(
    peer: ClusterPeer,
    topic: str,
    partition: PartitionInfo,
    settings: Mapping[str, str | int | bool],
) -> tuple[float, float]:
    """Return the milliseconds until the next acknowledgement, and until the new leader is known."""
    pid = peer.pids()[partition.leader]
    watch = LeaderWatch(peer.bootstrap, topic, partition)
    watch.start()
    writer = Writer(peer.bootstrap, topic, partition.index, settings)
    began = time.perf_counter()
    while time.perf_counter() < began + WARM_UP_S or not writer.acknowledged:
        writer.send()
    killed_at = writer.kill(pid)
    while writer.after_kill_at is None:
        writer.send()
        if time.perf_counter() > killed_at + FAILOVER_TIMEOUT_S:
            raise SystemExit(
                f"no record was acknowledged within {FAILOVER_TIMEOUT_S:.0f} s after the leader of "
                f"{topic}-{partition.index} was killed"
            )
    writer.close()
    watch.join(FAILOVER_TIMEOUT_S)
    return (writer.after_kill_at - killed_at) * 1_000, (watch.elected_at - killed_at) * 1_000


def _controller_failover(peer: ClusterPeer, pid: int) -> float:
    """Return the milliseconds until a topic is created after the kill.

    A failed attempt is retried immediately with another name: the first topic may exist although
    its response was lost.
    """
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    _create(admin)  # Connect before the kill.
    os.kill(pid, signal.SIGKILL)
    killed_at = time.perf_counter()
    while time.perf_counter() < killed_at + FAILOVER_TIMEOUT_S:
        with suppress(KafkaException):
            _create(admin)
            return (time.perf_counter() - killed_at) * 1_000
        time.sleep(POLL_S)
    raise SystemExit(
        f"no topic was created within {FAILOVER_TIMEOUT_S:.0f} s after the active controller was "
        "killed"
    )


def _create(admin: AdminClient) -> None:
    name = f"created-{uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 1, BROKERS)], request_timeout=FAILOVER_TIMEOUT_S)[
        name
    ].result(FAILOVER_TIMEOUT_S)
