"""Kafka's own clients and commands over TLS, with Java's TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock
from tests.java.kafka_tools import CONSUMER, PRODUCER, TOPICS, Tools
from tests.tls.certificates import Authority

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("cluster")]

PASSWORD = "correct-horse"


@dataclass(frozen=True)
class Secured:
    tools: Tools
    directory: Path
    client: Mapping[str, str]

    def config(self, name: str, **changes: str | None) -> str:
        """Write the properties of a client, with some changed or left out, and return the path."""
        values = dict(self.client)
        for key, value in changes.items():
            values[key.replace("_", ".")] = value or ""
        path = self.directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items() if value))
        return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority()
    node = authority.sign("node", ["localhost", "127.0.0.1"])
    ca = authority.write_pem(directory / "ca.pem")
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": node.write_pkcs12(directory / "node.p12", PASSWORD),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca,
        "ssl.client.auth": "required",
    }
    client = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.sign("Duke").write_pem(directory / "user.pem"),
    }
    with penstock.Cluster(settings) as cluster:
        yield Secured(Tools(cluster.bootstrap_servers), directory, client)


@pytest.mark.parametrize("version", ["TLSv1.3", "TLSv1.2"])
def test_commands_produce_and_consume(secured: Secured, version: str) -> None:
    config = secured.config(version, ssl_enabled_protocols=version, ssl_protocol=version)
    tools, topic = secured.tools, f"t-{version}"
    tools(TOPICS, "--create", "--topic", topic, "--command-config", config)
    lines = [f"record {number}" for number in range(1_000)]
    tools(PRODUCER, "--topic", topic, "--command-config", config, stdin="\n".join(lines) + "\n")
    options = ("--from-beginning", "--max-messages", "1000", "--group", f"g-{version}")
    read = tools(CONSUMER, "--topic", topic, *options, "--command-config", config)
    assert read.split("\n")[: len(lines)] == lines


def test_java_learns_from_the_alert_that_its_certificate_is_required(secured: Secured) -> None:
    """It ends at once with SslAuthenticationException, and does not try again until a timeout."""
    config = secured.config("anonymous", ssl_keystore_location=None, ssl_keystore_type=None)
    ended = secured.tools.run(TOPICS, "--list", "--command-config", config)
    assert ended.code != 0
    # The text of Kafka's SslAuthenticationException for an alert after the handshake of TLS 1.3.
    assert "Failed to process post-handshake messages" in ended.stdout + ended.stderr


def test_java_refuses_a_certificate_of_another_authority(secured: Secured) -> None:
    other = Authority("Other").write_pem(secured.directory / "other.pem")
    config = secured.config("other", ssl_truststore_location=other)
    ended = secured.tools.run(TOPICS, "--list", "--command-config", config)
    assert ended.code != 0
    assert "SSL handshake failed" in ended.stdout + ended.stderr
