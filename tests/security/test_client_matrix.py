"""Clients that others wrote, with each kind of authentication: administration, an idempotent
producer, a group, and a transaction, on three brokers whose every link is encrypted and
authenticated. tests/java/test_java_client_matrix.py has Kafka's own clients and commands."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import aiokafka
import aiokafka.admin
import confluent_kafka
import kafka
import kafka.admin
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.protocol.messages.metadata import MetadataRequest
from tests.e2e.raw_connection import encoded
from tests.security.secured_cluster import (
    AUTHENTICATIONS,
    LISTENERS,
    OAUTHBEARER,
    PASSWORDS,
    SecuredCluster,
    secured_cluster,
)

pytestmark = [pytest.mark.more, pytest.mark.xdist_group("cluster")]

COUNT = 60
TIMEOUT_S = 60
PLAIN_RECORDS = [b"plain-%d" % number for number in range(COUNT)]
COMMITTED = [b"committed-%d" % number for number in range(COUNT)]
EXPECTED = sorted(PLAIN_RECORDS + COMMITTED)
each_authentication = pytest.mark.parametrize("authentication", AUTHENTICATIONS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path_factory.mktemp("matrix")) as running:
        yield running


@each_authentication
def test_confluent_kafka(cluster: SecuredCluster, authentication: str) -> None:
    login = cluster.librdkafka(authentication)
    topic = f"confluent-{AUTHENTICATIONS.index(authentication)}"
    admin = AdminClient(login)
    new = NewTopic(topic, 3, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    producer = Producer({**login, "enable.idempotence": True})
    for value in PLAIN_RECORDS:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    writer = Producer({**login, "transactional.id": topic})
    writer.init_transactions(TIMEOUT_S)
    for values, end in (
        ([b"aborted"], writer.abort_transaction),
        (COMMITTED, writer.commit_transaction),
    ):
        writer.begin_transaction()
        for value in values:
            writer.produce(topic, value)
        end(TIMEOUT_S)
    settings = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**login, **settings})
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < len(EXPECTED) and time.monotonic() < deadline:
        found += [message.value() or b"" for message in consumer.consume(100, 1)]
    consumer.commit(asynchronous=False)
    committed = consumer.committed([TopicPartition(topic, number) for number in range(3)], 30)
    consumer.close()
    assert sorted(found) == EXPECTED
    assert sum(max(partition.offset, 0) for partition in committed) > len(EXPECTED)
    (listed,) = admin.list_topics(topic, TIMEOUT_S).topics.values()
    assert [len(partition.isrs) for partition in listed.partitions.values()] == [3, 3, 3]


@each_authentication
def test_kafka_python(cluster: SecuredCluster, authentication: str) -> None:
    login = cluster.python(authentication)
    topic = f"python-{AUTHENTICATIONS.index(authentication)}"
    with closing(kafka.KafkaAdminClient(**login)) as admin:
        admin.create_topics([kafka.admin.NewTopic(topic, 3, 3)])
        assert topic in admin.list_topics()
    with closing(kafka.KafkaProducer(**login, acks="all", enable_idempotence=True)) as producer:
        sent = [producer.send(topic, value) for value in PLAIN_RECORDS]
        for future in sent:
            future.get(TIMEOUT_S)
    with closing(kafka.KafkaProducer(**login, acks="all", transactional_id=topic)) as writer:
        writer.init_transactions()
        writer.begin_transaction()
        writer.send(topic, b"aborted")
        writer.abort_transaction()
        writer.begin_transaction()
        for value in COMMITTED:
            writer.send(topic, value)
        writer.commit_transaction()
    consumer = kafka.KafkaConsumer(
        topic,
        **login,
        group_id=topic,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=1000 * TIMEOUT_S,
    )
    with closing(consumer):
        found = [next(consumer).value for _ in EXPECTED]
        consumer.commit()
        parts = [kafka.TopicPartition(topic, number) for number in range(3)]
        assert sum(consumer.committed(part) or 0 for part in parts) >= len(EXPECTED)
    assert sorted(found) == EXPECTED


@each_authentication
def test_aiokafka(cluster: SecuredCluster, authentication: str) -> None:
    login = cluster.python(authentication, is_async=True)
    topic = f"aio-{AUTHENTICATIONS.index(authentication)}"

    async def scenario() -> list[bytes]:
        admin = aiokafka.admin.AIOKafkaAdminClient(**login)
        await admin.start()
        await admin.create_topics([aiokafka.admin.NewTopic(topic, 3, 3)])
        await admin.close()
        async with aiokafka.AIOKafkaProducer(**login, enable_idempotence=True) as producer:
            for sent in [await producer.send(topic, value) for value in PLAIN_RECORDS]:
                await sent
        async with aiokafka.AIOKafkaProducer(**login, transactional_id=topic) as writer:
            await writer.begin_transaction()
            await writer.send_and_wait(topic, b"aborted")
            await writer.abort_transaction()
            async with writer.transaction():
                for value in COMMITTED:
                    await writer.send(topic, value)
        async with aiokafka.AIOKafkaConsumer(
            topic,
            **login,
            group_id=topic,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        ) as consumer:
            found = [(await consumer.getone()).value for _ in EXPECTED]
            await consumer.commit()
        return found

    async def bounded() -> list[bytes]:
        async with asyncio.timeout(TIMEOUT_S):
            return await scenario()

    assert sorted(asyncio.run(bounded())) == EXPECTED


@each_authentication
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (tools/packages)")
def test_kcat(cluster: SecuredCluster, authentication: str) -> None:
    topic = f"kcat-{AUTHENTICATIONS.index(authentication)}"
    library = librdkafka_of_the_wheel(cluster.directory)
    admin = AdminClient(cluster.librdkafka("PLAIN"))
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(TIMEOUT_S)
    with issuer(cluster) as url:
        login = cluster.librdkafka(authentication)
        if authentication == OAUTHBEARER:
            # kcat has no callback: it gets its tokens from an issuer, by the client credentials
            # grant of OAuth.
            del login["oauth_cb"]
            login |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "kcat",
                "sasl.oauthbearer.client.secret": "kcat-secret",
                "sasl.oauthbearer.token.endpoint.url": url,
            }

        def kcat(*words: str, stdin: Iterable[bytes] = ()) -> bytes:
            settings = [f"{name}={value}" for name, value in login.items()]
            options = [word for setting in settings for word in ("-X", setting)]
            done = subprocess.run(
                ["kcat", *words, *options],
                env={**os.environ, "LD_LIBRARY_PATH": str(library)},
                input=b"".join(line + b"\n" for line in stdin),
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            assert done.returncode == 0, done.stderr.decode(errors="replace")
            return done.stdout

        idempotent = ("-X", "enable.idempotence=true")
        kcat("-P", "-t", topic, *idempotent, stdin=PLAIN_RECORDS)
        kcat("-P", "-t", topic, "-X", f"transactional.id={topic}", stdin=COMMITTED)
        options = ("-c", str(len(EXPECTED)), "-q", "-X", "auto.offset.reset=earliest")
        found = kcat("-G", topic, *options, topic)
        assert sorted(found.split()) == EXPECTED
        listed = json.loads(kcat("-L", "-J", "-t", topic))
    assert [len(partition["isrs"]) for partition in listed["topics"][0]["partitions"]] == [3] * 3


def librdkafka_of_the_wheel(directory: Path) -> Path:
    """Return a directory with confluent-kafka's librdkafka, for kcat. That of Debian 12, 2.0.2, has
    no OIDC, and repeats its nonce in the final message of SCRAM: a server that compares nonces, as
    Kafka 4 does, refuses it."""
    (library,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob(
        "librdkafka-*.so*"
    )
    link = directory / "lib" / "librdkafka.so.1"
    if not link.exists():
        link.parent.mkdir()
        link.symlink_to(library)
    return link.parent


@contextmanager
def issuer(cluster: SecuredCluster) -> Iterator[str]:
    """Run an issuer of alice's tokens, and yield its URL."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.dumps(
                {"access_token": cluster.token(scope="kafka"), "token_type": "Bearer"}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("listener", LISTENERS)
def test_no_link_serves_a_client_in_plain_text_or_without_a_login(
    cluster: SecuredCluster, listener: str
) -> None:
    """The listeners are all that the nodes have: no link between them can be open."""
    context = ssl.create_default_context(cafile=cluster.ca)
    request = encoded(MetadataRequest(topics=()), 9)
    for ports in cluster.nodes.ports:
        with socket.create_connection(("127.0.0.1", ports[listener]), TIMEOUT_S) as plain:
            plain.sendall(request)
            assert received(plain) == b""
        with (
            socket.create_connection(("127.0.0.1", ports[listener]), TIMEOUT_S) as connected,
            context.wrap_socket(connected, server_hostname="127.0.0.1") as encrypted,
        ):
            encrypted.sendall(request)
            assert received(encrypted) == b""


def received(end: socket.socket) -> bytes:
    """Return what the peer sends before it closes the connection or refuses the client."""
    try:
        return end.recv(1)
    except (ConnectionResetError, ssl.SSLError):
        return b""


def test_the_logs_have_no_secret(cluster: SecuredCluster) -> None:
    logs = "".join(node.log for node in cluster.nodes.nodes)
    assert "Traceback" not in logs
    for secret in (*PASSWORDS.values(), "node-secret", "PRIVATE KEY"):
        assert secret not in logs
