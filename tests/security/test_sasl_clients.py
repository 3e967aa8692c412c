"""Clients that others wrote, against a broker with a SASL_PLAINTEXT listener."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import jwt
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from typer.testing import CliRunner

import penstock
from penstock.cli import build
from penstock.cli.kafka import topics

pytestmark = pytest.mark.more

SETTINGS = {
    "listeners": "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,"
    "CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "sasl.oauthbearer.expected.audience": "kafka",
    "listener.name.clients.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_admin="admin-secret" user_alice="plain-secret";'
    ),
    "num.partitions": "1",
}
MECHANISMS = {
    "PLAIN": "plain-secret",
    "SCRAM-SHA-256": "secret-256",
    "SCRAM-SHA-512": "secret-512",
}
each_mechanism = pytest.mark.parametrize("mechanism", list(MECHANISMS))


SIGNER = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("jwks") / "keys.json"
    file.write_text(json.dumps({"keys": [ECAlgorithm.to_jwk(SIGNER.public_key(), as_dict=True)]}))
    urls = {
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "penstock.sasl.oauthbearer.allowed.urls": file.as_uri(),
    }
    with penstock.Cluster(SETTINGS | urls) as cluster:
        admin = AdminClient(librdkafka(cluster.bootstrap_servers, "PLAIN", "admin", "admin-secret"))
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            # A user is altered once in a request.
            password = MECHANISMS[mechanism.name.replace("_", "-")].encode()
            upsertion = UserScramCredentialUpsertion(
                "alice", ScramCredentialInfo(mechanism, 4_096), password
            )
            (future,) = admin.alter_user_scram_credentials([upsertion]).values()
            future.result(30)
        yield cluster.bootstrap_servers


def librdkafka(
    servers: str, mechanism: str, user: str, password: str, **more: Any
) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        **more,
    }


@each_mechanism
def test_confluent_kafka(servers: str, mechanism: str) -> None:
    login = librdkafka(servers, mechanism, "alice", MECHANISMS[mechanism])
    topic = f"confluent-{mechanism}"
    producer = Producer(login)
    failures: list[object] = []
    producer.produce(topic, b"hello", on_delivery=lambda error, _message: failures.append(error))
    assert producer.flush(30) == 0
    assert failures == [None]
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(login | group)
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"hello"
    finally:
        consumer.close()


@each_mechanism
def test_kafka_python(servers: str, mechanism: str) -> None:
    login = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": MECHANISMS[mechanism],
    }
    topic = f"python-{mechanism}"
    producer = kafka.KafkaProducer(**login)
    producer.send(topic, b"hello").get(30)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **login
    )
    assert next(consumer).value == b"hello"
    consumer.close()


@each_mechanism
def test_aiokafka(servers: str, mechanism: str) -> None:
    login = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": MECHANISMS[mechanism],
    }
    topic = f"aio-{mechanism}"

    async def scenario() -> bytes:
        producer = aiokafka.AIOKafkaProducer(**login)
        await producer.start()
        try:
            await producer.send_and_wait(topic, b"hello")
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", **login
        )
        await consumer.start()
        try:
            async with asyncio.timeout(30):
                message = await consumer.getone()
                return bytes(message.value)
        finally:
            await consumer.stop()

    assert asyncio.run(scenario()) == b"hello"


@each_mechanism
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_is_refused(servers: str, mechanism: str, user: str) -> None:
    reasons: list[KafkaError] = []
    login = librdkafka(servers, mechanism, user, "wrong", error_cb=reasons.append, log_level=0)
    producer = Producer(login)
    for _ in range(100):
        producer.poll(0.1)
        if reasons:
            break
    assert reasons[0].code() == KafkaError._AUTHENTICATION
    assert "Authentication failed" in reasons[0].str()


def test_kafka_python_reports_a_wrong_password(servers: str) -> None:
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(
            bootstrap_servers=servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username="alice",
            sasl_plain_password="wrong",
            request_timeout_ms=5_000,
            bootstrap_timeout_ms=3_000,
        )


def test_a_client_without_authentication_gets_nothing(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)


def test_credentials_are_described_and_removed(servers: str) -> None:
    admin = AdminClient(librdkafka(servers, "PLAIN", "admin", "admin-secret"))
    mechanism = ScramMechanism.SCRAM_SHA_256
    change = UserScramCredentialUpsertion("bob", ScramCredentialInfo(mechanism, 8_192), b"secret")
    admin.alter_user_scram_credentials([change])["bob"].result(30)
    described: Any = admin.describe_user_scram_credentials(["bob", "alice"])
    bob = described["bob"].result(30)
    (info,) = bob.scram_credential_infos
    assert (info.mechanism, info.iterations) == (mechanism, 8_192)
    assert len(described["alice"].result(30).scram_credential_infos) == 2
    deletion = UserScramCredentialDeletion("bob", mechanism)
    admin.alter_user_scram_credentials([deletion])["bob"].result(30)
    with pytest.raises(KafkaException) as raised:
        gone: Any = admin.describe_user_scram_credentials(["bob"])
        gone["bob"].result(30)
    assert raised.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_commands_take_the_login_from_command_config(
    servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="secret-512";\n'
    )
    flags = ["--bootstrap-server", servers, "--command-config", str(config)]
    create = ["--create", "--topic", "by-command", "--partitions", "1"]
    assert topics.run([*flags, *create]) == 0
    capsys.readouterr()
    result = CliRunner().invoke(build("topics"), ["topics", "list", *flags])
    assert result.exit_code == 0, result.output
    assert "by-command" in result.output.splitlines()
    config.write_text(config.read_text().replace("secret-512", "wrong-512"))
    result = CliRunner().invoke(build("topics"), ["topics", "list", *flags])
    assert result.exit_code == 1
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in result.stderr
    assert "wrong-512" not in result.output + result.stderr


def token(**claims: object) -> str:
    now = int(time.time())
    given = {"sub": "alice", "aud": "kafka", "iat": now, "exp": now + 300, **claims}
    return jwt.encode(given, SIGNER, algorithm="ES256")


def test_confluent_kafka_with_a_token(servers: str) -> None:
    login = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _config: (token(), time.time() + 300),
    }
    producer = Producer(login)
    failures: list[object] = []
    producer.produce("by-token", b"hello", on_delivery=lambda error, _m: failures.append(error))
    assert producer.flush(30) == 0
    assert failures == [None]


def test_confluent_kafka_with_a_token_for_another_audience(servers: str) -> None:
    reasons: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _config: (token(aud="other"), time.time() + 300),
            "error_cb": reasons.append,
            "log_level": 0,
        }
    )
    for _ in range(100):
        producer.poll(0.1)
        if reasons:
            break
    assert reasons[0].code() == KafkaError._AUTHENTICATION


def test_aiokafka_with_a_token(servers: str) -> None:
    class Tokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token()

    async def scenario() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        await producer.start()
        try:
            await producer.send_and_wait("by-token", b"hello")
        finally:
            await producer.stop()

    asyncio.run(scenario())


def test_users_of_plain_are_altered_while_the_broker_runs(servers: str) -> None:
    login = librdkafka(servers, "PLAIN", "admin", "admin-secret")
    admin = AdminClient(login)
    name = "listener.name.clients.plain.sasl.jaas.config"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = 'user_admin="admin-secret" user_alice="plain-secret"'
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    for value in (f'{module} {users} user_carol="c";', "nonsense"):
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(resource.restype, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([changed])[changed].result(30)
        (described,) = admin.describe_configs([resource]).values()
        shown = described.result(30)[name]
        assert (shown.value, shown.is_sensitive) == (None, True)
        carol = AdminClient(librdkafka(servers, "PLAIN", "carol", "c"))
        assert carol.list_topics(timeout=30).brokers
