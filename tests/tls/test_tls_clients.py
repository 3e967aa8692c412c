"""Three brokers whose every link is encrypted, and clients that we did not write."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer

import penstock
from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.client.errors import ConnectionFailed
from penstock.world import World
from penstock.world.real import run
from tests.tls.certificates import Authority

pytestmark = [pytest.mark.more, pytest.mark.xdist_group("cluster")]

COUNT = 100


@dataclass(frozen=True)
class Secured:
    """`user` is a file with a client's key and certificate, `ca` one with the authority's."""

    servers: str
    authority: Authority
    directory: Path
    node: Path
    user: str
    ca: str

    @property
    def java(self) -> dict[str, str]:
        """The properties of Kafka's clients."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.user,
        }

    @property
    def librdkafka(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SSL",
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.user,
            "ssl.key.location": self.user,
        }

    @property
    def python(self) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.user)
        return {
            "bootstrap_servers": self.servers.split(","),
            "security_protocol": "SSL",
            "ssl_context": context,
        }

    def create(self, topic: str) -> None:
        admin = AdminClient(self.librdkafka)
        admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(30)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority()
    node = directory / "node.pem"
    authority.sign("node", ["localhost", "127.0.0.1"]).write_pem(node)
    ca = authority.write_pem(directory / "ca.pem")
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L",
    }
    user = authority.sign("Duke").write_pem(directory / "user.pem")
    with penstock.Cluster(settings, brokers=3) as cluster:
        yield Secured(cluster.bootstrap_servers, authority, directory, node, user, ca)


def test_confluent_kafka_produces_and_consumes_in_a_group(secured: Secured) -> None:
    secured.create("confluent")
    producer = confluent_kafka.Producer({**secured.librdkafka, "acks": "all"})
    for number in range(COUNT):
        producer.produce("confluent", value=str(number).encode())
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer(
        {**secured.librdkafka, "group.id": "g-confluent", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["confluent"])
    seen: set[int] = set()
    deadline = time.monotonic() + 60
    while len(seen) < COUNT and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add(int(message.value() or b""))
    consumer.commit(asynchronous=False)
    consumer.close()
    assert seen == set(range(COUNT))


def test_kafka_python_produces_and_consumes_in_a_group(secured: Secured) -> None:
    secured.create("kafka-python")
    producer = KafkaProducer(**secured.python, acks="all")
    for number in range(COUNT):
        producer.send("kafka-python", str(number).encode())
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python",
        group_id="g-kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
        **secured.python,
    )
    seen = {int(message.value) for _, message in zip(range(COUNT), consumer, strict=False)}
    consumer.close()
    assert seen == set(range(COUNT))


def test_aiokafka_produces_and_consumes_in_a_group(secured: Secured) -> None:
    secured.create("aiokafka")

    async def scenario() -> set[int]:
        async with AIOKafkaProducer(**secured.python, acks="all") as producer:
            for number in range(COUNT):
                await producer.send_and_wait("aiokafka", str(number).encode())
        consumer = AIOKafkaConsumer(
            "aiokafka", group_id="g-aiokafka", auto_offset_reset="earliest", **secured.python
        )
        async with consumer:
            async with asyncio.timeout(60):
                return {int((await consumer.getone()).value) for _ in range(COUNT)}

    assert asyncio.run(scenario()) == set(range(COUNT))


def test_large_fetches_arrive_whole(secured: Secured) -> None:
    """Records of a megabyte, in responses of many turns of the event loop."""
    secured.create("large")
    producer = confluent_kafka.Producer({**secured.librdkafka, "message.max.bytes": 1_000_000})
    values = [bytes([number]) * 900_000 for number in range(40)]
    for value in values:
        producer.produce("large", value=value, partition=0)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(
        {**secured.librdkafka, "group.id": "g-large", "fetch.max.bytes": 50_000_000}
    )
    consumer.assign([confluent_kafka.TopicPartition("large", 0, 0)])
    seen: list[bytes | None] = []
    deadline = time.monotonic() + 60
    while len(seen) < len(values) and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.append(message.value())
    consumer.close()
    assert seen == values


def test_our_client_and_commands_work_with_javas_names(secured: Secured) -> None:
    async def scenario(world: World) -> int:
        async with Client(world, secured.servers, security=secured.java) as client:
            await client.admin.create_topic("ours", partitions=1)
            async with client.producer() as producer:
                await (await producer.send("ours", b"hello"))
            return (await client.admin.describe_quorum()).leader_id

    assert run(scenario) in (1, 2, 3)
    file = secured.directory / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in secured.java.items()))
    command = [str(Path(sys.executable).parent / "kafka-topics.sh"), "--list"]
    command += ["--bootstrap-server", secured.servers, "--command-config", str(file)]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "ours" in listed.stdout.split()


def test_clients_that_cannot_be_trusted_get_nothing(secured: Secured) -> None:
    no_certificate = {name: value for name, value in secured.java.items() if "keystore" not in name}
    others = Authority("Other").write_pem(secured.directory / "other.pem")

    def refusal(servers: str, properties: dict[str, str]) -> str:
        async def scenario(world: World) -> None:
            async with Client(world, servers, security=properties, request_timeout_s=5):
                raise AssertionError("it was accepted")

        with pytest.raises(ConnectionFailed) as error:
            run(scenario)
        return str(error.value)

    assert "certificate required" in refusal(secured.servers, no_certificate)
    assert "certificate of the server is refused" in refusal(
        secured.servers, {**secured.java, "ssl.truststore.location": others}
    )
    assert "security.protocol" in refusal(secured.servers, {})


def test_two_thousand_half_open_handshakes_leave_a_producer_alone(secured: Secured) -> None:
    secured.create("siege")
    host, _, port = secured.servers.split(",")[0].rpartition(":")
    producer = confluent_kafka.Producer({**secured.librdkafka, "acks": "all", "linger.ms": 0})
    times: list[float] = []

    def send() -> None:
        started = time.monotonic()
        producer.produce(
            "siege", b"x", callback=lambda *_: times.append(time.monotonic() - started)
        )
        producer.flush(30)

    for _ in range(20):
        send()
    times.clear()
    stop = threading.Event()
    sockets: list[socket.socket] = []

    def besiege() -> None:
        context = ssl.create_default_context()
        end = context.wrap_bio(ssl.MemoryBIO(), outgoing := ssl.MemoryBIO(), server_hostname="a")
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            hello = outgoing.read()
        while not stop.is_set() and len(sockets) < 2_000:
            half = socket.create_connection((host, int(port)))
            if len(sockets) % 2:
                half.sendall(hello)
            sockets.append(half)

    thread = threading.Thread(target=besiege)
    thread.start()
    while thread.is_alive() or len(times) < 200:
        send()
    stop.set()
    thread.join()
    # A new client from the same address gets in as well.
    late = AdminClient(secured.librdkafka)
    assert late.list_topics(timeout=20).topics
    for half in sockets:
        half.close()
    assert len(sockets) == 2_000
    p99 = sorted(times)[int(len(times) * 0.99)]
    assert p99 < 1.0, f"p99 {p99:.3f} s of {len(times)}"


def test_renewed_certificate_is_used_without_a_restart(secured: Secured) -> None:
    renewed = secured.authority.sign("node", ["localhost", "127.0.0.1"])
    renewed.write_pem(secured.node)
    for server in secured.servers.split(","):
        wait_serial(secured, server, renewed.certificate.serial_number)
    # Links between brokers are opened with it too: a topic needs all of them.
    secured.create("renewed")


def test_dynamic_setting_changes_the_certificate_of_one_broker(secured: Secured) -> None:
    """AlterConfigs of listener.name.<name>.ssl.keystore.location, as in Kafka (KIP-226)."""
    other = secured.authority.sign("node", ["localhost", "127.0.0.1"])
    path = other.write_pem(secured.directory / "other-node.pem")
    name = "listener.name.plaintext.ssl.keystore.location"
    first, second = secured.servers.split(",")[:2]
    before = serial(secured, second)

    async def scenario(world: World) -> None:
        async with Client(world, secured.servers, security=secured.java) as client:
            await client.admin.alter_configs(ConfigResourceType.BROKER, "1", put={name: path})

    run(scenario)
    wait_serial(secured, first, other.certificate.serial_number)
    assert serial(secured, second) == before


def serial(secured: Secured, server: str) -> int:
    """Return the number of the certificate that a broker presents."""
    host, _, port = server.rpartition(":")
    context = secured.python["ssl_context"]
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname=host) as end,
    ):
        return int(end.getpeercert()["serialNumber"], 16)


def wait_serial(secured: Secured, server: str, number: int) -> None:
    deadline = time.monotonic() + 30
    while (found := serial(secured, server)) != number and time.monotonic() < deadline:
        time.sleep(0.2)
    assert found == number
