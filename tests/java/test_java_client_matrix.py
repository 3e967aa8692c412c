"""Kafka's Java client and its commands with each kind of authentication, on three brokers whose
every link is encrypted and authenticated. Run by `make test-java`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.java.kafka_jars import compile_java, run_java
from tests.java.kafka_tools import CONFIGS, CONSUMER, PRODUCER, TOPICS, Tools
from tests.security.secured_cluster import AUTHENTICATIONS, SecuredCluster, secured_cluster

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("cluster")]

COUNT = 100
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
each_authentication = pytest.mark.parametrize("authentication", AUTHENTICATIONS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path_factory.mktemp("matrix")) as running:
        # Kafka's clients read a token only from a URL that a system property allows.
        url = running.java("OAUTHBEARER")["sasl.oauthbearer.token.endpoint.url"]
        with pytest.MonkeyPatch.context() as patch:
            allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"
            patch.setenv("JAVA_TOOL_OPTIONS", allowed)
            yield running


def properties(cluster: SecuredCluster, authentication: str) -> str:
    number = AUTHENTICATIONS.index(authentication)
    path = cluster.directory / f"java-{number}.properties"
    login = cluster.java(authentication)
    path.write_text("".join(f"{name}={value}\n" for name, value in login.items()))
    return str(path)


@each_authentication
def test_the_java_client(cluster: SecuredCluster, authentication: str) -> None:
    topic = f"java-{AUTHENTICATIONS.index(authentication)}"
    printed = run_java(
        "SecuredClient",
        cluster.servers(authentication),
        properties(cluster, authentication),
        topic,
        str(COUNT),
        classes=compile_java("SecuredClient"),
    )
    assert f"read {2 * COUNT} aborted false committed true" in printed


@each_authentication
def test_the_commands(cluster: SecuredCluster, authentication: str) -> None:
    tools = Tools(cluster.servers(authentication))
    config = ("--command-config", properties(cluster, authentication))
    topic = f"commands-{AUTHENTICATIONS.index(authentication)}"
    copies = ("--partitions", "3", "--replication-factor", "3")
    tools(TOPICS, "--create", "--topic", topic, *copies, *config)
    assert "Isr: " in tools(TOPICS, "--describe", "--topic", topic, *config)
    lines = [f"record {number}" for number in range(COUNT)]
    tools(PRODUCER, "--topic", topic, *config, stdin="\n".join(lines) + "\n")
    read = tools(
        *(CONSUMER, "--topic", topic, "--group", topic, "--from-beginning"),
        *("--max-messages", str(COUNT), *config),
    )
    assert sorted(read.splitlines()[:COUNT]) == sorted(lines)
    assert topic in tools(GROUPS, "--describe", "--group", topic, *config)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools(CONFIGS, "--alter", "--add-config", "retention.ms=1000", *entity, *config)
    assert "retention.ms=1000" in tools(CONFIGS, "--describe", *entity, *config)
    acl = ("--allow-principal", "User:bob", "--operation", "Read", "--topic", topic)
    tools(ACLS, "--add", *acl, *config)
    assert "User:bob" in tools(ACLS, "--list", "--topic", topic, *config)
