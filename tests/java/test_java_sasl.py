"""Kafka's own clients and commands over SASL: users, mechanisms, tokens and re-authentication."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

import penstock
from tests.java.kafka_jars import JAVA_TIMEOUT_S
from tests.java.kafka_tools import CONFIGS, CONSUMER, PERFORMANCE, PRODUCER, TOPICS, Tools, java

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("cluster")]

PACKAGE = "org.apache.kafka.common.security"
PASSWORDS = {"PLAIN": "plain-secret", "SCRAM-SHA-256": "sha256-pw", "SCRAM-SHA-512": "sha512-pw"}
KEY = rsa.generate_private_key(65_537, 2_048)


class Secured:
    def __init__(self, servers: str, directory: Path, metrics: str) -> None:
        self.tools = Tools(servers)
        self.directory = directory
        self.metrics = metrics

    def config(self, mechanism: str, user: str, password: str) -> str:
        """Write the properties of a client, and return the path."""
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        path = self.directory / f"{mechanism}-{user}-{password}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={PACKAGE}.{module} required "
            f'username="{user}" password="{password}";\n'
        )
        return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("sasl")
    keys = directory / "keys.json"
    keys.write_text(json.dumps({"keys": [RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)]}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        metrics = f"http://127.0.0.1:{free.getsockname()[1]}"
    settings = {
        "penstock.metrics.listener": metrics,
        "listeners": "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.clients.plain.sasl.jaas.config": (
            f"{PACKAGE}.plain.PlainLoginModule required "
            'user_admin="admin-secret" user_alice="plain-secret";'
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "penstock.sasl.oauthbearer.allowed.urls": keys.as_uri(),
        "listener.name.clients.scram-sha-256.connections.max.reauth.ms": "2000",
    }
    with penstock.Cluster(settings) as cluster:
        made = Secured(cluster.bootstrap_servers, directory, f"{metrics}/metrics")
        admin = made.config("PLAIN", "admin", "admin-secret")
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            credential = f"{mechanism}=[iterations=8192,password={PASSWORDS[mechanism]}]"
            who = ("--entity-type", "users", "--entity-name", "alice")
            change = ("--alter", "--add-config", credential, *who)
            printed = made.tools(CONFIGS, *change, "--command-config", admin)
            assert "Completed updating config for user alice." in printed
        yield made


@pytest.mark.parametrize("mechanism", list(PASSWORDS))
def test_commands_produce_and_consume(secured: Secured, mechanism: str) -> None:
    config = secured.config(mechanism, "alice", PASSWORDS[mechanism])
    tools, topic = secured.tools, f"t-{mechanism}"
    tools(TOPICS, "--create", "--topic", topic, "--command-config", config)
    lines = [f"record {number}" for number in range(100)]
    tools(PRODUCER, "--topic", topic, "--command-config", config, stdin="\n".join(lines) + "\n")
    options = ("--from-beginning", "--max-messages", "100", "--group", f"g-{mechanism}")
    read = tools(CONSUMER, "--topic", topic, *options, "--command-config", config)
    assert read.split("\n")[: len(lines)] == lines


@pytest.mark.parametrize("mechanism", list(PASSWORDS))
def test_java_learns_that_its_password_is_wrong(secured: Secured, mechanism: str) -> None:
    config = secured.config(mechanism, "alice", "wrong")
    ended = secured.tools.run(TOPICS, "--list", "--command-config", config)
    assert ended.code != 0
    assert "Authentication failed" in ended.stdout + ended.stderr


def test_a_producer_authenticates_again_before_its_session_ends(secured: Secured) -> None:
    """connections.max.reauth.ms is 2 s, and the producer sends for about 6 s (KIP-368)."""
    config = secured.config("SCRAM-SHA-256", "alice", PASSWORDS["SCRAM-SHA-256"])
    load = ("--topic", "again", "--num-records", "300", "--record-size", "10", "--throughput", "50")
    ended = secured.tools.run(PERFORMANCE, *load, "--command-config", config)
    assert ended.code == 0, ended
    assert "300 records sent" in ended.stdout
    with urllib.request.urlopen(secured.metrics, timeout=30) as page:
        lines = page.read().decode().splitlines()
    again = 'penstock_authentications_total{outcome="successful_again"} '
    (count,) = [line.removeprefix(again) for line in lines if line.startswith(again)]
    assert float(count) >= 2


@pytest.mark.parametrize("lifetime_s", [300, -300])
def test_java_authenticates_with_a_token(secured: Secured, lifetime_s: int) -> None:
    token = secured.directory / f"token{lifetime_s}"
    now = int(time.time())
    claims = {"sub": "alice", "iat": now - 600, "exp": now + lifetime_s, "scope": "kafka"}
    token.write_text(jwt.encode(claims, KEY, algorithm="RS256"))
    config = secured.directory / f"oauth{lifetime_s}.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={PACKAGE}.oauthbearer.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    tools = secured.tools
    command = java(TOPICS, *tools.addressed(TOPICS, "--list", "--command-config", str(config)))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}"
    command.insert(1, allowed)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
    )
    printed = done.stdout + done.stderr
    assert (done.returncode == 0) == (lifetime_s > 0), printed
    if lifetime_s < 0:
        assert "invalid_token" in printed or "expired" in printed.lower()
