"""`penstock up --secure`: what it writes works as it is, survives a restart, and covers an added
node. Nothing gets in without a login, and no secret is in a log."""

from __future__ import annotations

import json
import re
import ssl
import stat
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from cryptography import x509

from tests.compat.kcat_client import KCAT
from tests.e2e.penstock_process import COMMAND, PenstockError
from tests.security.secure_up import SecureUp

pytestmark = pytest.mark.xdist_group("secure_up")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureUp]:
    cluster = SecureUp(tmp_path_factory.mktemp("up"), "--port", "0")
    try:
        cluster.start("--secure", "--brokers", "2")
        yield cluster
    finally:
        cluster.stop()


def produce(settings: dict[str, Any], topic: str, *values: bytes) -> None:
    producer = Producer(settings)
    failures: list[KafkaError | None] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _message: failures.append(error))
    assert producer.flush(60) == 0
    assert failures == [None] * len(values)


def consume(settings: dict[str, Any], topic: str, count: int) -> list[bytes | None]:
    group = {"group.id": f"group-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **group})
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()


def wait_refused(settings: dict[str, Any], *names: str) -> None:
    """Wait until a client reports one of these errors."""
    errors: list[str] = []
    producer = Producer(
        {**settings, "error_cb": lambda error: errors.append(error.name()), "log_level": 0}
    )
    deadline = time.monotonic() + 60
    while not set(errors) & set(names):
        assert time.monotonic() < deadline, errors
        producer.poll(0.1)


def test_it_prints_the_paths_of_both_files(up: SecureUp) -> None:
    assert up.printed == [
        str(up.directory / "client.properties"),
        str(up.directory / "librdkafka.properties"),
    ]


def test_files_with_secrets_are_for_their_owner_only(up: SecureUp) -> None:
    texts = [*up.secrets, "PRIVATE KEY"]
    found = 0
    for file in up.directory.rglob("*"):
        if not file.is_file():
            continue
        data = file.read_bytes()
        if any(text.encode() in data for text in texts):
            found += 1
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    # Two files of clients, the key of the authority, the passwords, and two files of each node.
    assert found == 4 + 2 * 2
    for node in ("1", "2"):
        assert stat.S_IMODE((up.directory / node).stat().st_mode) == 0o700


def test_the_file_for_librdkafka_works_as_it_is(up: SecureUp) -> None:
    produce(up.librdkafka, "first", b"1", b"2")
    assert consume(up.librdkafka, "first", 2) == [b"1", b"2"]
    producer = Producer({**up.librdkafka, "transactional.id": "tx"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("committed", b"3")
    producer.commit_transaction(60)
    assert consume(up.librdkafka, "committed", 1) == [b"3"]
    assert {"first", "committed"} <= set(AdminClient(up.librdkafka).list_topics(timeout=30).topics)


def test_every_link_needs_tls_and_a_login(up: SecureUp) -> None:
    good = up.librdkafka
    plain = {"bootstrap.servers": up.bootstrap}
    wait_refused(plain, "_TRANSPORT", "_ALL_BROKERS_DOWN")
    wait_refused({**good, "sasl.password": "wrong"}, "_AUTHENTICATION")
    wait_refused({**good, "sasl.username": "nobody"}, "_AUTHENTICATION")
    others = {key: value for key, value in good.items() if key != "ssl.ca.location"}
    wait_refused(others, "_SSL")
    # Every listener of every node is SASL_SSL.
    for file in up.directory.glob("*/server.properties"):
        text = file.read_text()
        (listeners,) = (
            line.removeprefix("listeners=")
            for line in text.splitlines()
            if line.startswith("listeners=")
        )
        names = [listener.partition("://")[0] for listener in listeners.split(",")]
        assert names == ["SASL_SSL", "CONTROLLER"]
        assert "listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL" in text


def test_metrics_have_tls_and_a_token(up: SecureUp) -> None:
    nodes = json.loads(up.run("nodes", "list", "--json", "--dir", str(up.directory)))
    assert len(nodes) >= 2
    context = ssl.create_default_context(cafile=str(up.directory / "ca.pem"))
    token = up.secrets[2]
    for node in nodes:
        address = node["metrics"]
        assert address.startswith("https://127.0.0.1:")
        request = urllib.request.Request(
            f"{address}/metrics", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=30, context=context) as response:
            assert b"penstock_node_info" in response.read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/metrics", timeout=30, context=context)
        with pytest.raises(OSError, match=r"closed connection|reset"):
            urllib.request.urlopen(address.replace("https", "http"), timeout=30)
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(address, timeout=30, context=ssl.create_default_context())


def test_commands_with_the_directory_find_the_login(up: SecureUp) -> None:
    where = ("--dir", str(up.directory))
    up.run("topics", "create", "by-command", *where)
    assert "by-command" in up.run("topics", "list", *where)
    assert "User:admin" in up.run("acls", "list", *where)
    assert up.run("doctor", "--over", "0", "--json", *where)
    nodes = up.run("brokers", "list", *where)
    assert up.bootstrap.split(",")[0] in nodes


def test_a_new_user_has_no_rights_until_it_gets_some(up: SecureUp) -> None:
    where = ("--dir", str(up.directory))
    environment = {"ALICE": "alice-secret"}
    password = ("--password-env", "ALICE")
    set_up = up.run("users", "set", "alice", *password, *where, environment=environment)
    assert "alice-secret" not in set_up
    assert "alice" in up.run("users", "list", *where)
    alice = {**up.librdkafka, "sasl.username": "alice", "sasl.password": "alice-secret"}
    up.run("topics", "create", "alices", *where)
    producer = Producer({**alice, "message.timeout.ms": 20_000})
    errors: list[KafkaError | None] = []
    producer.produce("alices", b"1", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(60) == 0
    assert [error and error.code() for error in errors] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    up.run("acls", "create", "User:alice", "--operation", "all", "--topic", "alices", *where)
    group = ("--operation", "read", "--group", "group-alices")
    up.run("acls", "create", "User:alice", *group, *where)
    produce(alice, "alices", b"2")
    assert consume(alice, "alices", 1) == [b"2"]
    up.run("users", "remove", "alice", "--yes", *where)
    assert "alice" not in up.run("users", "list", *where)
    wait_refused(alice, "_AUTHENTICATION")


@pytest.mark.more
def test_an_added_node_is_secure_and_a_restart_keeps_all_secrets(up: SecureUp) -> None:
    where = ("--dir", str(up.directory))
    added = up.run("nodes", "add", *where).strip()
    assert added == "3"
    assert len(up.librdkafka["bootstrap.servers"].split(",")) == 3
    up.run("topics", "create", "everywhere", "--replication-factor", "3", *where)
    produce(up.librdkafka, "everywhere", b"before")
    pem = (up.directory / added / "node.pem").read_bytes()
    certificate = x509.load_pem_x509_certificate(pem)
    ca = x509.load_pem_x509_certificate((up.directory / "ca.pem").read_bytes())
    certificate.verify_directly_issued_by(ca)
    kept = {
        name: (up.directory / name).read_bytes()
        for name in ("ca.pem", "ca.key", "secure.json", "client.properties", f"{added}/node.pem")
    }
    up.stop()
    up.start()  # without --secure: the directory is a secure one
    for name, data in kept.items():
        assert (up.directory / name).read_bytes() == data, name
    assert consume(up.librdkafka, "everywhere", 1) == [b"before"]


def test_no_secret_is_in_a_log(up: SecureUp) -> None:
    logs = up.logs()
    assert logs
    for secret in [*up.secrets, "alice-secret"]:
        assert secret not in logs


def test_a_cluster_that_was_created_without_it_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "1"
    home.mkdir()
    (home / "server.properties").write_text("process.roles=broker\n")
    words = [str(COMMAND), "up", "--secure", "--dir", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "was created without --secure" in done.stderr


@pytest.mark.more
def test_kcat_uses_the_file_as_it_is(
    up: SecureUp, record_property: Callable[[str, object], None]
) -> None:
    """librdkafka before 2.6.1 repeats its nonce in SCRAM's final message. Kafka 4 refuses that, and
    so does Penstock (CVE-2024-56128)."""
    if KCAT is None:
        record_property("note", "kcat is not on the PATH: it did not use librdkafka.properties")
        return
    file = str(up.directory / "librdkafka.properties")
    words = [KCAT, "-F", file, "-L", "-J"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    shown = subprocess.run([KCAT, "-V"], capture_output=True, text=True, check=False, timeout=60)
    version = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", shown.stdout + shown.stderr)
    assert version is not None, shown
    if tuple(map(int, version.groups())) < (2, 6, 1):
        record_property("note", f"kcat has {version[0]}, whose SCRAM is refused as by Kafka 4")
        assert "invalid credentials" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    brokers = json.loads(done.stdout)["brokers"]
    assert len(brokers) == len(up.librdkafka["bootstrap.servers"].split(","))


def test_a_single_node_keeps_its_secrets_over_a_restart(tmp_path: Path) -> None:
    single = SecureUp(tmp_path, "--port", "0")
    try:
        single.start("--secure")
        produce(single.librdkafka, "kept", b"1")
        names = ("ca.pem", "ca.key", "secure.json", "1/node.pem", "1/server.properties")
        kept = {name: (single.directory / name).read_bytes() for name in names}
        single.stop()
        single.start()
        assert kept == {name: (single.directory / name).read_bytes() for name in names}
        # The node has another port by now, and the files of clients have it.
        assert single.librdkafka["bootstrap.servers"] == single.bootstrap
        assert consume(single.librdkafka, "kept", 1) == [b"1"]
        assert "kept" in single.run("topics", "list", "--dir", str(single.directory))
    finally:
        single.stop()


def test_a_missing_directory_is_named(up: SecureUp, tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="has no cluster"):
        up.run("topics", "list", "--dir", str(tmp_path))
