"""Three brokers whose every link is authenticated, with PLAIN and with SCRAM."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import penstock
from penstock import start
from penstock.client.client import Client
from penstock.client.errors import AuthenticationFailed
from penstock.node.broker.formatting import format_directories, scram_credentials
from penstock.world import World
from penstock.world.real import RealRng, run

pytestmark = pytest.mark.more

MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}
PACKAGE = "org.apache.kafka.common.security."


def login(mechanism: str, *users: str) -> str:
    options = " ".join(f'user_{user}="{user}-secret"' for user in users)
    own = 'username="node" password="node-secret"'
    return f"{PACKAGE}{MODULES[mechanism]} required {own} {options};"


def settings(mechanism: str) -> dict[str, str]:
    users = ("node", "alice") if mechanism == "PLAIN" else ()
    prefix = f"{mechanism.lower()}.sasl.jaas.config"
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.mechanism.controller.protocol": mechanism,
        f"listener.name.plaintext.{prefix}": login(mechanism, *users),
        f"listener.name.controller.{prefix}": login(mechanism, *users),
    }


@pytest.fixture(scope="module", params=list(MODULES))
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Yield the bootstrap servers and the mechanism. SCRAM users come from `format --add-scram`."""
    mechanism = request.param
    arguments = [
        f"SCRAM-SHA-512=[name={user},password={user}-secret]" for user in ("node", "alice")
    ]
    credentials = scram_credentials(arguments, RealRng()) if mechanism != "PLAIN" else []
    formatting = partial(format_directories, credentials=credentials)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "format_directories", formatting)
        with penstock.Cluster(settings(mechanism), brokers=3) as running:
            yield running.bootstrap_servers, mechanism


def librdkafka(servers: str, mechanism: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
        **more,
    }


def test_replication_groups_and_transactions(cluster: tuple[str, str]) -> None:
    login = librdkafka(*cluster)
    topic = NewTopic("orders", 3, 3, config={"min.insync.replicas": "3"})
    admin = AdminClient(login)
    admin.create_topics([topic])["orders"].result(30)
    producer = Producer({**login, "transactional.id": "t", "acks": "all"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("orders", str(number), partition=number % 3)
    producer.commit_transaction(30)
    consumer = Consumer(
        {
            **login,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.subscribe(["orders"])
        values: set[bytes | None] = set()
        while len(values) < 30:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            values.add(message.value())
    finally:
        consumer.close()


def java(mechanism: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{PACKAGE}{MODULES[mechanism]} required username="alice" '
        f'password="{password}";',
    }


def test_our_client_with_javas_settings(cluster: tuple[str, str]) -> None:
    servers, mechanism = cluster

    async def scenario(world: World) -> int:
        async with Client(world, servers, security=java(mechanism, "alice-secret")) as client:
            return len(client.cluster.metadata.brokers)

    assert run(scenario) == 3


def test_our_client_reports_a_wrong_password_at_once(cluster: tuple[str, str]) -> None:
    servers, mechanism = cluster

    async def scenario(world: World) -> None:
        with pytest.raises(AuthenticationFailed, match="Authentication failed") as raised:
            async with Client(world, servers, security=java(mechanism, "wrong-secret")):
                pass
        assert "secret" not in str(raised.value)

    run(scenario)
