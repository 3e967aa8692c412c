"""penstock doctor with real nodes that refuse a client, or that a client refuses: certificates,
security protocols, credentials and access control entries."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

import penstock
from penstock.cli import build
from penstock.cli.cluster.layout import free_ports
from penstock.security.setup.authority import NODE_LIFETIME, Authority
from penstock.security.setup.cluster import CA_FILE, ClusterSecrets
from tests.security.secure_up import SecureUp

pytestmark = pytest.mark.xdist_group("doctor_security")
# How long the certificate that expires is valid after the node has read it.
SHORT_LIFE_S = 5.0


class Listeners(NamedTuple):
    ports: dict[str, int]
    # Java settings of a client that trusts the authority, and of one that trusts another.
    trusting: dict[str, str]
    foreign: dict[str, str]
    expires: datetime.datetime


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    """A node whose listeners have different certificates, SASL, or neither."""
    directory = tmp_path_factory.mktemp("listeners")
    now = datetime.datetime.now(datetime.UTC)
    authority, other = Authority.create("CA", now), Authority.create("other", now)
    (directory / "ca.pem").write_bytes(authority.certificate_pem)
    (directory / "other.pem").write_bytes(other.certificate_pem)
    expires = now + datetime.timedelta(seconds=SHORT_LIFE_S)
    files = {
        "good": authority.issue("good", ["127.0.0.1"], now),
        "elsewhere": authority.issue("elsewhere", ["elsewhere.example"], now),
        "short": authority.issue("short", ["127.0.0.1"], expires - NODE_LIFETIME),
    }
    settings = {}
    for name, pem in files.items():
        (directory / f"{name}.pem").write_bytes(pem)
        settings[f"listener.name.{name}.ssl.keystore.location"] = str(directory / f"{name}.pem")
        settings[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
    settings |= {
        "listener.name.mutual.ssl.keystore.location": str(directory / "good.pem"),
        "listener.name.mutual.ssl.keystore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.client.auth": "required",
    }
    names = ["PLAIN", "GOOD", "ELSEWHERE", "SHORT", "MUTUAL"]
    ports = dict(zip(names, free_ports(len(names), set()), strict=True))
    listeners = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    protocols = {"PLAIN": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    settings |= {
        "listeners": ",".join([*listeners, "CONTROLLER://127.0.0.1:0"]),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocols.get(name, 'SSL')}" for name in [*names, "CONTROLLER"]
        ),
        "inter.broker.listener.name": "PLAIN",
    }

    def client(ca: str) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / ca),
        }

    with penstock.Cluster(settings):
        yield Listeners(ports, client("ca.pem"), client("other.pem"), expires)


def doctor(*words: str) -> list[dict[str, Any]]:
    """Return the findings."""
    done = CliRunner().invoke(build("doctor"), ["doctor", "--json", "--over", "0", *words])
    assert done.stdout, (done.exit_code, done.stderr, done.exception)
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return findings


def finding(code: str, findings: list[dict[str, Any]]) -> str:
    """Return the text of the findings with a code."""
    found = [each for each in findings if each["code"] == code]
    assert found, findings
    return json.dumps(found)


def look(directory: Path, port: int, settings: dict[str, str]) -> list[dict[str, Any]]:
    file = directory / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return doctor("--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(file))


def test_a_usable_listener_has_no_finding(node: Listeners, tmp_path: Path) -> None:
    found = look(tmp_path, node.ports["GOOD"], node.trusting)
    assert not [each for each in found if each["code"].startswith("bootstrap-")]


def test_a_plaintext_client_on_a_tls_port(node: Listeners) -> None:
    found = doctor("--bootstrap-server", f"127.0.0.1:{node.ports['GOOD']}")
    assert "speaks TLS" in finding("bootstrap-tls", found)


def test_a_tls_client_on_a_plaintext_port(node: Listeners, tmp_path: Path) -> None:
    found = look(tmp_path, node.ports["PLAIN"], node.trusting)
    assert "listener without TLS" in finding("bootstrap-plaintext", found)


def test_an_issuer_that_is_not_trusted(node: Listeners, tmp_path: Path) -> None:
    found = look(tmp_path, node.ports["GOOD"], node.foreign)
    assert "ssl.truststore.location" in finding("bootstrap-certificate", found)


def test_a_certificate_for_another_host(node: Listeners, tmp_path: Path) -> None:
    found = look(tmp_path, node.ports["ELSEWHERE"], node.trusting)
    text = finding("bootstrap-certificate-name", found)
    assert "127.0.0.1" in text
    assert "subject alternative name" in text


def test_a_missing_client_certificate(node: Listeners, tmp_path: Path) -> None:
    found = look(tmp_path, node.ports["MUTUAL"], node.trusting)
    assert "certificate" in finding("bootstrap-tls-handshake", found)


def test_a_certificate_that_has_expired(node: Listeners, tmp_path: Path) -> None:
    while datetime.datetime.now(datetime.UTC) <= node.expires:
        time.sleep(0.05)
    found = look(tmp_path, node.ports["SHORT"], node.trusting)
    assert "expired" in finding("bootstrap-certificate-expired", found)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureUp]:
    cluster = SecureUp(tmp_path_factory.mktemp("up"), "--port", "0", "--brokers", "1")
    try:
        cluster.start("--secure", "--controllers", "1")
        yield cluster
    finally:
        cluster.stop()


def test_wrong_credentials(up: SecureUp, tmp_path: Path) -> None:
    wrong = up.java
    wrong["sasl.jaas.config"] = wrong["sasl.jaas.config"].replace(up.secrets[1], "wrong")
    port = int(up.bootstrap.rpartition(":")[2])
    found = look(tmp_path, port, wrong)
    text = finding("bootstrap-credentials", found)
    assert "penstock users list" in text
    assert up.secrets[1] not in text


def test_missing_entries_and_refused_clients(up: SecureUp, tmp_path: Path) -> None:
    where = ("--dir", str(up.directory))
    up.run("users", "set", "eve", "--password-env", "EVE", *where, environment={"EVE": "e-secret"})
    up.run("topics", "create", "payments", *where)
    eve = up.java
    secrets = ClusterSecrets.load(up.directory)
    assert secrets is not None
    jaas = eve["sasl.jaas.config"].replace(secrets.admin_password, "e-secret")
    eve["sasl.jaas.config"] = jaas.replace('"admin"', '"eve"')
    port = int(up.bootstrap.rpartition(":")[2])
    found = look(tmp_path, port, eve)
    text = finding("acls-missing", found)
    assert "CLUSTER_AUTHORIZATION_FAILED" in text
    assert "penstock acls create" in text

    # What the nodes logged of their clients.
    errors: list[str] = []
    mistakes: tuple[dict[str, str], ...] = (
        {"sasl.username": "eve", "sasl.password": "e-secret"},
        {"sasl.username": "eve", "sasl.password": "other"},
        {"security.protocol": "SASL_PLAINTEXT"},
    )
    producers = [
        Producer(
            {**up.librdkafka, **more, "error_cb": lambda e: errors.append(e.name()), "log_level": 0}
        )
        for more in mistakes
    ]
    producers[0].produce("payments", b"1")
    codes = {"client-login", "client-handshake", "client-denied"}
    deadline = time.monotonic() + 60
    while True:
        for producer in producers:
            producer.poll(0.1)
        findings = doctor(*where)
        if codes <= {each["code"] for each in findings} and "payments" in json.dumps(findings):
            break
        assert time.monotonic() < deadline, findings
    assert "eve" in finding("client-login", findings)
    assert "not TLS" in finding("client-handshake", findings)
    assert "may not DESCRIBE TOPIC 'payments'" in finding("client-denied", findings)
    text = json.dumps(findings)
    assert not [secret for secret in [*up.secrets, "e-secret"] if secret in text]
    assert (up.directory / CA_FILE).exists()
