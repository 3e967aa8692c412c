"""A rolling change of three brokers and their quorum from PLAINTEXT to SASL_SSL under load, as
docs/SASL.md describes it: no call of a client fails, and no record is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from tests.security.node_processes import HOST, NodeCluster, running
from tests.security.secured_cluster import NODE_LOGIN, PLAIN_MODULE, SCRAM_MODULE
from tests.tls.certificates import Authority

pytestmark = [pytest.mark.more, pytest.mark.xdist_group("cluster")]

TOPIC, GROUP, PARTITIONS = "rolled", "readers", 3
LISTENERS = ("PLAINTEXT", "SECURE", "CONTROLLER", "CONTROLLER_SECURE")
DEADLINE_S = 120.0
EVERY_S = 0.005
# Clients try again soon while a broker restarts; they do not fail before DEADLINE_S.
PATIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "log_level": 0,
}
PROTOCOLS = "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT,CONTROLLER_SECURE:SASL_SSL"


class Numbers:
    """An idempotent producer of numbered records in a thread. It stops at the first failure."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._producer = self._made(client)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[object] = []
        self._thread = threading.Thread(target=self._run, name="numbers")
        self._thread.start()

    @staticmethod
    def _made(client: Mapping[str, Any]) -> Producer:
        return Producer({**client, **PATIENT, "enable.idempotence": True, "linger.ms": 5})

    def move(self, client: Mapping[str, Any]) -> None:
        """Go on with another producer, after the last record of this one is acknowledged."""
        with self._lock:
            self._flush()
            self._producer = self._made(client)

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join()
        self._flush()
        return self.sent

    def _flush(self) -> None:
        if self._producer.flush(DEADLINE_S):
            self.failures.append("records were not acknowledged")

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S) and not self.failures:
            with self._lock:
                value, partition = b"%d" % self.sent, self.sent % PARTITIONS
                try:
                    self._producer.produce(
                        TOPIC, value, partition=partition, on_delivery=self._delivered
                    )
                    self.sent += 1
                    self._producer.poll(0)
                except (BufferError, KafkaException) as error:
                    self.failures.append(error)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged += 1


class Member:
    """A member of the group in a thread. It commits what it has read before it reads on."""

    def __init__(self, client: Mapping[str, Any], seen: list[int]) -> None:
        settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({**client, **PATIENT, **settings})
        self._consumer.subscribe([TOPIC])
        self._seen = seen
        self._stopping = threading.Event()
        self.failures: list[object] = []
        self._thread = threading.Thread(target=self._run, name="member")
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set() and not self.failures:
            found = [message for message in self._consumer.consume(500, 0.1) if message is not None]
            for message in found:
                error = message.error()
                if error is not None and not error.retriable():
                    self.failures.append(error)
                elif error is None:
                    self._seen.append(int(message.value() or b""))
            if found and not self.failures:
                self._commit()

    def _commit(self) -> None:
        """Commit until it succeeds: a coordinator that moves answers with a retriable error."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                self._consumer.commit(asynchronous=False)
                return
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() == KafkaError._NO_OFFSET:
                    return
                if time.monotonic() > deadline:
                    self.failures.append(error)
                    return
                time.sleep(0.05)


class Rolled:
    """The cluster, and the settings of each step."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        self.ca = authority.write_pem(directory / "ca.pem")
        node = authority.sign("node", ["localhost", HOST]).write_pem(directory / "node.pem")
        settings = {"inter.broker.listener.name": "PLAINTEXT", "min.insync.replicas": "2"}
        self.cluster = NodeCluster(
            directory, settings, LISTENERS, first=("PLAINTEXT", "CONTROLLER")
        )
        self._both = {
            "listener.security.protocol.map": PROTOCOLS,
            "controller.listener.names": "CONTROLLER,CONTROLLER_SECURE",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": node,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.controller_secure.sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} {NODE_LOGIN};",
            "listener.name.controller_secure.plain.sasl.jaas.config": (
                f'{PLAIN_MODULE} {NODE_LOGIN} user_node="node-secret";'
            ),
        }

    @property
    def plain(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.cluster.servers("PLAINTEXT")}

    @property
    def secure(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.cluster.servers("SECURE"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            "ssl.ca.location": self.ca,
        }

    def add_listeners(self, number: int) -> dict[str, str]:
        return {**self._both, "listeners": self.cluster.listeners(number, LISTENERS)}

    def use_them(self, _number: int) -> dict[str, str]:
        voters = ",".join(
            f"{voter}@{HOST}:{ports['CONTROLLER_SECURE']}"
            for voter, ports in enumerate(self.cluster.ports, 1)
        )
        return {
            "inter.broker.listener.name": "SECURE",
            "controller.listener.names": "CONTROLLER_SECURE,CONTROLLER",
            "controller.quorum.voters": voters,
        }

    def remove_plaintext(self, number: int) -> dict[str, str]:
        return {
            "listeners": self.cluster.listeners(number, ("SECURE", "CONTROLLER_SECURE")),
            "controller.listener.names": "CONTROLLER_SECURE",
            "listener.security.protocol.map": "SECURE:SASL_SSL,CONTROLLER_SECURE:SASL_SSL",
        }

    def roll(self, changes: Callable[[int], Mapping[str, str]], client: Mapping[str, Any]) -> None:
        """Restart one node after the other with changed settings, each when all replicas are in
        sync."""
        for number, node in enumerate(self.cluster.nodes, 1):
            node.stop()
            node.settings |= changes(number)
            node.start()
            self.wait_in_sync(client)

    def wait_in_sync(self, client: Mapping[str, Any]) -> None:
        admin = AdminClient({**client, **PATIENT})
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            try:
                listed = admin.list_topics(timeout=10)
            except KafkaException:
                continue
            replicas = [
                len(partition.isrs)
                for topic in listed.topics.values()
                for partition in topic.partitions.values()
            ]
            if len(listed.brokers) == 3 and set(replicas) == {3}:
                return
            time.sleep(0.05)
        raise AssertionError(f"replicas are not in sync: {self.cluster.logs()}")


def test_a_rolling_change_to_sasl_ssl_fails_no_call(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rolled = Rolled(tmp_path)
    seen: list[int] = []
    with running(rolled.cluster):
        create_users_and_topic(rolled.plain)
        numbers, member = Numbers(rolled.plain), Member(rolled.plain, seen)
        second: Member | None = None
        try:
            rolled.roll(rolled.add_listeners, rolled.plain)
            rolled.roll(rolled.use_them, rolled.plain)
            numbers.move(rolled.secure)
            member.stop()
            second = Member(rolled.secure, seen)
            rolled.roll(rolled.remove_plaintext, rolled.secure)
            sent = numbers.stop()
            wait_read(seen, sent)
        finally:
            numbers.stop()
            for each in (member, second):
                if each is not None:
                    each.stop()
        failures = [*numbers.failures, *member.failures, *second.failures]
        assert failures == [], rolled.cluster.logs()
        assert (numbers.acknowledged, sorted(seen)) == (sent, list(range(sent)))
        assert read_back(rolled.secure, sent) == list(range(sent))
        logs = [node.log for node in rolled.cluster.nodes]
    assert not any("Traceback" in log for log in logs)
    record_property("note", f"rolling change to SASL_SSL: {sent} records once, no failed call")


def create_users_and_topic(client: Mapping[str, Any]) -> None:
    admin = AdminClient(dict(client))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
    for user in ("node", "alice"):
        change = UserScramCredentialUpsertion(user, info, f"{user}-secret".encode())
        admin.alter_user_scram_credentials([change])[user].result(DEADLINE_S)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(DEADLINE_S)


def wait_read(seen: list[int], count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(seen) < count and time.monotonic() < deadline:
        time.sleep(0.05)


def read_back(client: Mapping[str, Any], count: int) -> list[int]:
    """Return the numbers in the topic, in order, and more if there are some."""
    settings = {"group.id": "back", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer({**client, **settings})
    consumer.subscribe([TOPIC])
    found: list[int] = []
    ends = 0
    deadline = time.monotonic() + DEADLINE_S
    while (len(found) < count or ends < PARTITIONS) and time.monotonic() < deadline:
        for message in consumer.consume(1_000, 0.5):
            error = message.error()
            if error is None:
                found.append(int(message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends += 1
    consumer.close()
    return sorted(found)
