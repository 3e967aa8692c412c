"""Three brokers whose every link is SASL_SSL, and clients of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import penstock
from penstock.client.client import Client
from penstock.client.errors import ConnectionFailed
from penstock.world import World
from penstock.world.real import run
from tests.tls.certificates import Authority

pytestmark = [pytest.mark.more, pytest.mark.xdist_group("cluster")]

COUNT = 100


class Cluster(NamedTuple):
    servers: str
    ca: str


LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="node-secret" user_node="node-secret" user_alice="alice-secret";'
)


@pytest.fixture(scope="module")
def with_sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers whose every link is SASL_SSL."""
    directory = tmp_path_factory.mktemp("sasl")
    authority = Authority()
    node = directory / "node.pem"
    authority.sign("node", ["localhost", "127.0.0.1"]).write_pem(node)
    ca = authority.write_pem(directory / "ca.pem")
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": LOGIN,
        "listener.name.controller.plain.sasl.jaas.config": LOGIN,
    }
    with penstock.Cluster(settings, brokers=3) as cluster:
        yield Cluster(cluster.bootstrap_servers, ca)


def test_every_link_may_be_sasl_over_tls(with_sasl: Cluster) -> None:
    login: dict[str, Any] = {
        "bootstrap.servers": with_sasl.servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": with_sasl.ca,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
    }
    admin = AdminClient(login)
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(30)
    producer = confluent_kafka.Producer({**login, "acks": "all"})
    for number in range(COUNT):
        producer.produce("t", value=str(number).encode())
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer({**login, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    seen = [consumer.poll(30) for _ in range(COUNT)]
    consumer.close()
    assert sorted(int(message.value() or b"") for message in seen if message) == list(range(COUNT))


def test_our_client_uses_sasl_over_tls(with_sasl: Cluster) -> None:
    security = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": with_sasl.ca,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="alice" password="alice-secret";'
        ),
    }

    async def scenario(world: World) -> None:
        async with Client(world, with_sasl.servers, security=security) as client:
            await client.admin.create_topic("ours", partitions=1)

    run(scenario)
    wrong = {**security, "sasl.jaas.config": security["sasl.jaas.config"].replace("alice-s", "x")}

    async def refused(world: World) -> None:
        async with Client(world, with_sasl.servers, security=wrong):
            raise AssertionError("it was accepted")

    with pytest.raises(ConnectionFailed, match="cannot authenticate") as error:
        run(refused)
    assert "xecret" not in str(error.value)
