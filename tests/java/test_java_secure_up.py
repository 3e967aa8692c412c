"""Kafka's own commands and clients with the client.properties of `penstock up --secure`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.java.kafka_tools import CONSUMER, PERFORMANCE, PRODUCER, TOPICS, Tools
from tests.security.secure_up import SecureUp

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("cluster")]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureUp]:
    cluster = SecureUp(tmp_path_factory.mktemp("up"), "--port", "0")
    try:
        cluster.start("--secure", "--brokers", "3")
        yield cluster
    finally:
        cluster.stop()


def test_kafkas_commands_and_clients_use_the_file_as_it_is(up: SecureUp) -> None:
    tools, config = Tools(up.bootstrap), ("--command-config", str(up.client_properties))
    three = ("--partitions", "1", "--replication-factor", "3")
    created = tools(TOPICS, "--create", "--topic", "java", *three, *config)
    assert created == "Created topic java.\n"
    tools(PRODUCER, "--topic", "java", *config, stdin="one\ntwo\n")
    group = ("--group", "java", "--from-beginning", "--max-messages", "2")
    read = tools(CONSUMER, "--topic", "java", *group, "--timeout-ms", "30000", *config)
    assert read.split() == ["one", "two"]
    load = ("--num-records", "20", "--record-size", "10", "--throughput", "-1")
    transactional = ("--transactional-id", "java", "--transaction-duration-ms", "100")
    sent = tools(PERFORMANCE, "--topic", "java", *load, *transactional, *config)
    assert "20 records sent" in sent
    acls = tools("org.apache.kafka.tools.AclCommand", "--list", *config)
    assert "User:admin" in acls
    quorum = tools("org.apache.kafka.tools.MetadataQuorumCommand", *config, "describe", "--status")
    assert "LeaderId" in quorum


def test_a_wrong_password_is_refused(up: SecureUp, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(up.client_properties.read_text().replace(up.secrets[1], "wrong"))
    ended = Tools(up.bootstrap).run(TOPICS, "--list", "--command-config", str(wrong))
    assert ended.code != 0
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in ended.stdout
