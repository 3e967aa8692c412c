"""How long a cluster is away after `kill -9`: of a partition's leader until the next acknowledged
write, of the active controller until the next topic. Seen by librdkafka; the signal is sent by the
measuring thread itself, between two polls, so no start of a process is in it.
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
AWAY_AT_MOST_S = 120.0
NOBODY = -1
# An answer that takes longer was asked of the dead.
ASK_S = 0.1
# As the tool that FACTS.md's figure for Kafka was made with: a client that adds little waiting of
# its own.
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
    """Milliseconds of each round, and in how many of them the victim was the active controller too.
    The first to know of the next leader is who asks all the time; a producer hears of it when its
    library asks."""

    times: list[float]
    elected: list[float]
    controllers: int


def leader_failovers(
    peer: ClusterPeer, rounds: int, settings: Mapping[str, str | int | bool]
) -> Failovers:
    """Each round begins with everything in sync and preferred leaders leading. The active
    controller is the victim in every second one."""
    topic = f"failover-{uuid4().hex[:8]}"
    create_topic(peer.bootstrap, topic, [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
    found = Failovers([], [], rounds // 2)
    for number in range(rounds):
        wait_healthy(peer.bootstrap, BROKERS)
        active = quorum(peer.bootstrap).leader_id
        chosen = next(
            one
            for one in partitions(peer.bootstrap, topic)
            if (one.leader == active) == (number % 2 == 1)
        )
        written, elected = _leader_failover(peer, topic, chosen, settings)
        found.times.append(written)
        found.elected.append(elected)
        peer.restart(chosen.leader)
    wait_healthy(peer.bootstrap, BROKERS)
    return found


def controller_failovers(peer: ClusterPeer, rounds: int) -> Failovers:
    """With controllers that are no brokers."""
    times = []
    for _number in range(rounds):
        wait_healthy(peer.bootstrap, BROKERS)
        active = quorum(peer.bootstrap).leader_id
        times.append(_controller_failover(peer, peer.pids()[active]))
        peer.restart(active)
    return Failovers(times, [], rounds)


class Writer:
    """One partition's producer. A record sent after the kill can only be acknowledged by the next
    leader."""

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
        self._producer.poll(POLL_S)  # the signal needs a moment, too
        self._killed = True
        return killed_at

    def close(self) -> None:
        self._producer.flush(AWAY_AT_MOST_S)

    def _delivered(
        self, sent_after_kill: bool, error: KafkaError | None, _message: Message
    ) -> None:
        if error is not None:
            raise KafkaException(error)
        self.acknowledged += 1
        if sent_after_kill and self.after_kill_at is None:
            self.after_kill_at = time.perf_counter()


class Onlooker(threading.Thread):
    """Asks for a partition's leader all the time, on a client of its own, until it is another."""

    def __init__(self, bootstrap: str, topic: str, partition: PartitionInfo) -> None:
        super().__init__(daemon=True)
        self.elected_at = 0.0
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **EAGER})
        self._topic, self._partition = topic, partition

    def run(self) -> None:
        while self._leader() in (NOBODY, self._partition.leader):
            time.sleep(POLL_S)
        self.elected_at = time.perf_counter()

    def _leader(self) -> int:
        with suppress(KafkaException):
            partitions = (
                self._admin.list_topics(self._topic, timeout=ASK_S).topics[self._topic].partitions
            )
            return int(partitions[self._partition.index].leader)
        return NOBODY


def _leader_failover(
    peer: ClusterPeer,
    topic: str,
    partition: PartitionInfo,
    settings: Mapping[str, str | int | bool],
) -> tuple[float, float]:
    """Until the next write, and until the next leader is known."""
    pid = peer.pids()[partition.leader]
    onlooker = Onlooker(peer.bootstrap, topic, partition)
    onlooker.start()
    writer = Writer(peer.bootstrap, topic, partition.index, settings)
    began = time.perf_counter()
    while time.perf_counter() < began + WARM_UP_S or not writer.acknowledged:
        writer.send()
    killed_at = writer.kill(pid)
    while writer.after_kill_at is None:
        writer.send()
        if time.perf_counter() > killed_at + AWAY_AT_MOST_S:
            raise SystemExit(
                f"no write was acknowledged within {AWAY_AT_MOST_S:.0f} s of the kill of "
                f"{topic}-{partition.index}'s leader"
            )
    writer.close()
    onlooker.join(AWAY_AT_MOST_S)
    return (writer.after_kill_at - killed_at) * 1_000, (onlooker.elected_at - killed_at) * 1_000


def _controller_failover(peer: ClusterPeer, pid: int) -> float:
    """Whoever is refused asks again at once, with another name: the first may have been created
    unseen."""
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    _create(admin)  # the client is warm, and the controller at work
    os.kill(pid, signal.SIGKILL)
    killed_at = time.perf_counter()
    while time.perf_counter() < killed_at + AWAY_AT_MOST_S:
        with suppress(KafkaException):
            _create(admin)
            return (time.perf_counter() - killed_at) * 1_000
        time.sleep(POLL_S)
    raise SystemExit(
        f"no topic was created within {AWAY_AT_MOST_S:.0f} s of the kill of the active controller"
    )


def _create(admin: AdminClient) -> None:
    name = f"created-{uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 1, BROKERS)], request_timeout=AWAY_AT_MOST_S)[name].result(
        AWAY_AT_MOST_S
    )
