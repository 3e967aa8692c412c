"""Attacks on Apache Kafka that have a CVE number, each tried against Penstock.

docs/SECURITY-TESTS.md lists all of them, with the tests of this file and those elsewhere. Each
docstring says how the attack would succeed on a naive server.
"""

from __future__ import annotations

import ast
import hmac
import re
import socket
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from crc32c import crc32c

import penstock
from penstock.client.client import Client
from penstock.client.security import InvalidSecurity
from penstock.config.node import ConfigError, read_node_config
from penstock.config.node_settings import BROKER_RACK
from penstock.errors import ErrorCode
from penstock.limits import MAX_DECOMPRESSED_BYTES
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.records.compression import Codec
from penstock.security.sasl.mechanism import SaslFailed
from penstock.security.sasl.scram import ScramClient, ScramServer
from penstock.security.sasl.scram_credential import ScramMechanism
from penstock.security.sasl.scram_keys import credential_of, salted_password
from penstock.world import World
from penstock.world.real import run
from tests.e2e.raw_connection import produce
from tests.log.making import batch
from tests.security.attacked_node import (
    LOGIN,
    MEGABYTE,
    PLAIN_PASSWORD,
    SCRAM_PASSWORD,
    AttackedNode,
    attacked_node,
)

SOURCE = Path(penstock.__file__).parent
JNDI = "com.sun.security.auth.module.JndiLoginModule required"
LDAP = "com.sun.security.auth.module.LdapLoginModule required"
BASE = (
    "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
    "listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:0\n"
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    with attacked_node(tmp_path_factory.mktemp("cves")) as made:
        made.create_topic("orders")
        yield made
        assert "Traceback" not in made.process.log


class Canary:
    """A server of the attacker, which a victim that follows a setting would connect to."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"

    def assert_untouched(self) -> None:
        self._listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            self._listener.accept()


@contextmanager
def canary() -> Iterator[Canary]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Canary(listener)
        yield made
        made.assert_untouched()


def alter_broker(node: AttackedNode, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    node.admin.incremental_alter_configs([resource])[resource].result(30)


# JNDI and class loading by settings: CVE-2023-25194, CVE-2025-27818, CVE-2025-27819


@pytest.mark.parametrize("module", [f"{JNDI} user.provider.url", f"{LDAP} userProvider"])
def test_a_login_module_in_a_clients_settings_looks_nothing_up(module: str) -> None:
    """Whoever sets sasl.jaas.config of a client names a login module. A naive client loads it, and
    the module deserializes what an LDAP server of the attacker sends."""
    with canary() as attacker:
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{module}="ldap://{attacker.address}/evil";',
        }

        async def scenario(world: World) -> None:
            with pytest.raises(InvalidSecurity, match="not allowed") as raised:
                Client(world, "127.0.0.1:1", security=settings)
            assert attacker.address not in str(raised.value)

        run(scenario)


@pytest.mark.parametrize("module", [f"{JNDI} user.provider.url", f"{LDAP} userProvider"])
def test_a_login_module_in_a_brokers_settings_looks_nothing_up(
    node: AttackedNode, module: str
) -> None:
    """Whoever may alter a broker's configs sets the login of a listener. A naive broker loads the
    module with the next connection."""
    name = "listener.name.clients.plain.sasl.jaas.config"
    with canary() as attacker:
        alter_broker(node, name, f'{module}="ldap://{attacker.address}/evil";')
        try:
            with node.connect() as connection:
                connection.log_in("alice", PLAIN_PASSWORD)
        finally:
            alter_broker(node, name, LOGIN)


# The settings of Kafka 4.3 that name classes.
CLASSES = [
    "alter.config.policy.class.name",
    "authorizer.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
    "group.share.persister.class.name",
    "kafka.metrics.reporters",
    "metric.reporters",
    "principal.builder.class",
    "remote.log.metadata.manager.class.name",
    "remote.log.storage.manager.class.name",
    "replica.selector.class",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.server.callback.handler.class",
    "security.providers",
    "ssl.engine.factory.class",
    "config.providers.file.class",
    "interceptor.classes",
]


# Of these, the settings that Penstock does not have. They are ignored with a warning.
IGNORED = {
    "config.providers.file.class",
    "group.share.persister.class.name",
    "interceptor.classes",
    "kafka.metrics.reporters",
    "metric.reporters",
    "remote.log.metadata.manager.class.name",
    "remote.log.storage.manager.class.name",
}


@pytest.mark.parametrize("name", CLASSES)
def test_no_setting_loads_a_class(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A naive node imports what a setting names: here a module that is on the path."""
    (tmp_path / "evil_class.py").write_text("raise SystemError('loaded')\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = f"{BASE}{name}=evil_class.Evil\n".encode()
    if name in IGNORED:
        assert "is ignored" in read_node_config(text, "server.properties").warnings[0]
    elif name == "replica.selector.class":
        # Compared with the name of Kafka's class; other names have no effect.
        read_node_config(text, "server.properties")
    else:
        with pytest.raises(ConfigError, match=re.escape(name)):
            read_node_config(text, "server.properties")
    assert "evil_class" not in sys.modules


# Files of Penstock that load a module by a computed name, run generated code, unpickle or start
# processes, and why their input is no setting and comes from no client.
DYNAMIC = {
    "cli/__init__.py": "the table of commands",
    "coordinator/consumer/regex.py": "re2",
    "handlers/__init__.py": "the table of handlers",
    "handlers/authorization/table.py": "the table of checks",
    "handlers/envelope.py": "the table of controller handlers",
    "node/shards/groups.py": "the modules of a package, loaded in advance",
    "node/shards/transactions.py": "the modules of a package, loaded in advance",
    "protocol/apis.py": "the table of APIs",
    "protocol/internal/coordinator_logs.py": "the table of records",
    "protocol/source.py": "codecs generated from the table of fields",
    "security/principal_rules.py": "re2",
    "testing/__init__.py": "the table of names",
    "testing/host_process.py": "penstock itself",
    "world/real/child.py": "the pipe to the parent process",
    "world/real/offload.py": "the pipe to the child process",
    "world/sim/offload.py": "calls of the simulation itself",
}
_DANGEROUS = re.compile(
    r"import_module|__import__|exec|eval|loads?|Popen|system|popen|create_subprocess_\w+"
)
_MODULES = {"pickle", "marshal", "subprocess", "os", "importlib", "asyncio", "yaml", "shelve"}
# Rooms whose task is to run programs that their user names.
_PROGRAMS = ("cli/", "console/", "sim/", "spark/")


def test_modules_are_loaded_by_tables_only() -> None:
    """By construction no text from outside reaches a function that loads or runs code. A new use of
    such a function fails here until it is listed with its reason."""
    found = set()
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        if name.startswith(_PROGRAMS) and name != "cli/__init__.py":
            continue
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and _is_dangerous(call.func):
                found.add(name)
    assert found == set(DYNAMIC)


def _is_dangerous(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in ("import_module", "__import__", "exec", "eval")
    return (
        isinstance(function, ast.Attribute)
        and _DANGEROUS.fullmatch(function.attr) is not None
        and ast.unparse(function.value).split(".")[0] in _MODULES
    )


# A client that poses as a replica: CVE-2018-1288


def test_a_reader_cannot_fetch_as_a_follower(node: AttackedNode) -> None:
    """A follower's fetch moves the high watermark and deletes from the log of other followers. A
    naive broker checks READ on the topic and then believes replica_id."""
    node.create_topic("followed")
    allow(node, "alice", AclOperation.ALL, ResourceType.TOPIC, "followed")
    partition = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=1_000_000, partition_max_bytes=1_000
    )
    topic = FetchRequest.Topic(topic="followed", partitions=(partition,))
    with node.connect() as connection:
        connection.log_in("alice", PLAIN_PASSWORD)
        as_follower = FetchRequest(replica_id=2, max_wait_ms=0, topics=(topic,))
        answer = connection.request(as_follower, 12, FetchResponse)
        codes = [part.error_code for each in answer.responses for part in each.partitions]
        assert {answer.error_code, *codes} & {
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }
        as_consumer = FetchRequest(replica_id=-1, max_wait_ms=0, topics=(topic,))
        answer = connection.request(as_consumer, 12, FetchResponse)
        codes = [part.error_code for each in answer.responses for part in each.partitions]
        assert codes == [ErrorCode.OFFSET_OUT_OF_RANGE], "the same client may read"


# SCRAM


def test_a_recorded_scram_exchange_cannot_be_replayed_to_the_node(node: AttackedNode) -> None:
    """CVE-2024-56128: a naive server does not compare the nonce of the final message with its own,
    so that a recorded final message with its proof logs in again."""
    side = ScramClient(ScramMechanism.SHA_512, "alice", SCRAM_PASSWORD, "recorded")
    with node.connect() as connection:
        assert connection.handshake("SCRAM-SHA-512") == 0
        final = side.evaluate(connection.token(side.first()).auth_bytes)
        assert final is not None
        assert connection.token(final).error_code == 0
    with node.connect() as connection:
        assert connection.handshake("SCRAM-SHA-512") == 0
        assert connection.token(side.first()).error_code == 0
        answer = connection.token(final)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.is_closed_by_broker()


def test_scram_compares_proofs_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2021-38153: a naive server compares with ==, whose time shows how many bytes are right.
    Here every comparison of what a client sent with a secret is one of compare_digest, of equal
    lengths, whatever the client sent. tests/security/test_sasl_plain.py has that of PLAIN."""
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def spy(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return compare(left, right)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    mechanism, salt = ScramMechanism.SHA_256, b"0123456789"
    credential = credential_of(
        mechanism, salted_password(mechanism, "right", salt, 4_096), salt, 4_096
    )
    for user, password in (("alice", "wrong"), ("alice", "r"), ("nobody", "right")):
        server = ScramServer(
            mechanism, {"alice": credential}.get, "server-nonce", b"secret of the salts"
        )
        client = ScramClient(mechanism, user, password, "client-nonce")
        final = client.evaluate(server.evaluate(client.first()))
        assert final is not None
        with pytest.raises(SaslFailed):
            server.evaluate(final)
    nonce = len("client-nonceserver-nonce")
    assert compared == [(nonce, nonce), (32, 32)] * 3


def test_secrets_are_compared_by_compare_digest_alone() -> None:
    """CVE-2021-38153, by construction: no file of SASL compares a password, a proof, a key or a
    signature with == or !=."""
    secret = re.compile(r"password|proof|stored_key|server_key|signature|hmac", re.IGNORECASE)
    for file in sorted((SOURCE / "security" / "sasl").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                compared = [side for side in sides if not side.startswith("len(")]
                assert not any(secret.search(side) for side in compared), (file.name, sides)


# Memory before authentication: CVE-2022-34917


def claims(api_key: int, version: int, body: bytes) -> bytes:
    """Return a frame whose body claims a length of 2 GB."""
    frame = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(frame)) + frame


HUGE = struct.pack(">i", 2**31 - 1)
VARINT = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    "frame",
    [
        claims(17, 1, b"\x7f\xff"),
        claims(18, 3, b"\0" + VARINT),
        claims(18, 3, b"\0\2a" + VARINT),
        claims(36, 0, HUGE),
        claims(36, 2, b"\0" + VARINT),
        claims(3, 1, HUGE),
        HUGE,
        struct.pack(">i", 524_289) + bytes(100),
    ],
    ids=["mechanism", "name", "version", "token", "token v2", "topics", "frame", "over the limit"],
)
def test_a_claimed_length_takes_no_memory_before_authentication(
    node: AttackedNode, frame: bytes
) -> None:
    """A naive server allocates what a length field says, before it knows the client. A thousand
    such requests exhaust its memory."""
    before = node.process.resident_bytes()
    for _ in range(50):
        with node.connect() as connection:
            connection.send(frame)
            assert connection.is_closed_by_broker()
    assert node.process.resident_bytes() - before < 32 * MEGABYTE


def test_unfinished_requests_of_strangers_have_a_bound(node: AttackedNode) -> None:
    """sasl.server.max.receive.size bounds one request; a naive server keeps as many as there are
    connections. 200 connections send all but one byte of the largest request, 100 MB together."""
    before = node.process.resident_bytes()
    size = 524_288
    connections = [node.connect() for _ in range(200)]
    try:
        for connection in connections:
            connection.socket.setblocking(False)
            data = memoryview(struct.pack(">i", size) + bytes(size - 1))
            # What the node does not read remains in this end's buffer.
            connection.socket.send(data)
        with node.connect() as other:
            other.log_in("alice", PLAIN_PASSWORD)
            assert other.request(MetadataRequest(topics=()), 9, MetadataResponse).brokers
        assert node.process.resident_bytes() - before < 160 * MEGABYTE
    finally:
        for connection in connections:
            connection.socket.close()


# Access control entries lost or widened: CVE-2024-27309


def allow(
    node: AttackedNode,
    user: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> None:
    binding = AclBinding(
        kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, permission
    )
    for future in node.admin.create_acls([binding]).values():
        future.result(30)


def entries_of(topic: str, principal: str | None) -> AclBindingFilter:
    name: Any = principal  # None is every principal, and every host
    return AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        name,
        cast(Any, None),
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def test_removing_one_of_several_entries_does_not_widen_the_others(node: AttackedNode) -> None:
    """The brokers of the CVE treated a resource as if it had one entry when one of several was
    removed, so that its DENY was forgotten."""
    node.create_topic("payroll")
    allow(node, "*", AclOperation.READ, ResourceType.TOPIC, "payroll")
    allow(node, "bob", AclOperation.ALL, ResourceType.TOPIC, "payroll")
    allow(node, "alice", AclOperation.ALL, ResourceType.TOPIC, "payroll", AclPermissionType.DENY)
    only_bob, every = (entries_of("payroll", user) for user in ("User:bob", None))
    (removed,) = node.admin.delete_acls([only_bob]).values()
    assert len(removed.result(30)) == 1
    left = node.admin.describe_acls(every).result(30)
    assert {(acl.principal, acl.permission_type) for acl in left} == {
        ("User:*", AclPermissionType.ALLOW),
        ("User:alice", AclPermissionType.DENY),
    }
    for user, password, code in (
        ("alice", PLAIN_PASSWORD, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("bob", "bob-secret", ErrorCode.NONE),
    ):
        with node.connect() as connection:
            connection.log_in(user, password)
            asked = MetadataRequest(topics=(MetadataRequest.Topic(name="payroll"),))
            (topic,) = connection.request(asked, 9, MetadataResponse).topics
            assert topic.error_code == code, user
            written = produce(connection, "payroll", batch("x"))
            assert written.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, user


# Files and URLs by settings: CVE-2025-27817, CVE-2024-31141


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_oauthbearer_settings_of_a_client_read_nothing(scheme: str, tmp_path: Path) -> None:
    """CVE-2025-27817: a naive client reads the token endpoint or the key set that its settings
    name, a local file or an internal URL, and shows the content in its error."""
    secret = tmp_path / "secret"
    secret.write_text("the-content-of-the-file")
    with canary() as attacker:
        url = secret.as_uri() if scheme == "file" else f"http://{attacker.address}/latest"
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
            ),
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.jwks.endpoint.url": url,
        }

        async def scenario(world: World) -> None:
            with pytest.raises(InvalidSecurity) as raised:
                Client(world, "127.0.0.1:1", security=settings)
            assert "the-content" not in str(raised.value)

        run(scenario)


def test_an_altered_key_set_url_is_not_followed(node: AttackedNode) -> None:
    """CVE-2025-27817 on the broker: whoever may alter configs points the key set elsewhere. A naive
    broker fetches it, and then trusts the attacker's keys."""
    with canary() as attacker:
        for name in (
            "sasl.oauthbearer.jwks.endpoint.url",
            "listener.name.clients.oauthbearer.sasl.oauthbearer.jwks.endpoint.url",
        ):
            with pytest.raises(KafkaException):
                alter_broker(node, name, f"http://{attacker.address}/keys")
        with node.connect() as connection:
            assert connection.handshake("OAUTHBEARER") == 0
            answer = connection.token(f"n,,\1auth=Bearer {node.token()}\1\1".encode())
            assert answer.error_code == 0


@pytest.mark.parametrize(
    "value", ["${file:/etc/passwd:root}", "${env:HOME}", "${directory:/etc:passwd}"]
)
def test_values_refer_to_no_file_and_no_environment(value: str) -> None:
    """CVE-2024-31141: a naive node resolves references with a provider of files or of the
    environment, and DescribeConfigs then shows the content."""
    text = f"{BASE}broker.rack={value}\n"
    assert read_node_config(text.encode(), "server.properties")[BROKER_RACK] == value
    for more in (
        "config.providers=file\n",
        "config.providers=env\nconfig.providers.env.class=EnvVarConfigProvider\n",
    ):
        with pytest.raises(ConfigError, match=r"config\.providers is not supported"):
            read_node_config((text + more).encode(), "server.properties")


def test_a_config_provider_cannot_be_altered_in(node: AttackedNode) -> None:
    """CVE-2024-31141 through AlterConfigs."""
    with pytest.raises(KafkaException):
        alter_broker(node, "config.providers", "file")


# An authorization id of another user: CVE-2017-12610


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("PLAIN", f"bob\0alice\0{PLAIN_PASSWORD}"),
        ("SCRAM-SHA-256", "n,a=bob,n=alice,r=nonce"),
        ("SCRAM-SHA-512", "n,a=bob,n=alice,r=nonce"),
        ("OAUTHBEARER", "n,a=bob,\1auth=Bearer {token}\1\1"),
    ],
)
def test_an_authorization_id_of_another_user_is_refused(
    node: AttackedNode, mechanism: str, message: str
) -> None:
    """A naive server authenticates alice, and then serves her as bob, whom her message names."""
    with node.connect() as connection:
        assert connection.handshake(mechanism) == 0
        answer = connection.token(message.replace("{token}", node.token()).encode())
        if mechanism == "OAUTHBEARER" and answer.error_code == 0:
            # The refusal of RFC 7628 is a challenge, which the client acknowledges.
            assert answer.auth_bytes
            answer = connection.token(b"\1")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.is_closed_by_broker()


# Decompression bombs


def bomb_batch() -> bytes:
    """Return a batch with a right CRC whose records decompress to 512 MB of zeros."""
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    megabyte = bytes(MEGABYTE)
    records = b"".join(stream.compress(megabyte) for _ in range(512)) + stream.flush()
    assert 512 * MEGABYTE > MAX_DECOMPRESSED_BYTES
    whole = bytearray(batch("x", codec=Codec.GZIP))
    head = 61
    made = whole[:head] + records
    made[8:12] = struct.pack(">i", len(made) - 12)
    made[17:21] = struct.pack(">I", crc32c(bytes(made[21:])))
    return bytes(made)


def test_a_decompression_bomb_is_refused_by_the_node(node: AttackedNode) -> None:
    """The topic has another codec than the batch, so that the broker must decompress it. A naive
    broker decompresses half a gigabyte from 500 KB, and more with the next request.
    tests/records/test_records_compression.py has the bombs of each codec."""
    node.create_topic("recompressed", compression_type="zstd")
    bomb = bomb_batch()
    assert len(bomb) < MEGABYTE
    before = node.process.resident_bytes()
    with node.connect("PLAINTEXT") as connection:
        refused = produce(connection, "recompressed", bomb)
        assert refused.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
        assert "more than" in (refused.error_message or "")
        assert produce(connection, "recompressed", batch("x")).error_code == 0
    assert node.process.resident_bytes() - before < 64 * MEGABYTE


# The list


def test_every_cve_of_the_list_has_its_tests() -> None:
    """The tests that docs/SECURITY-TESTS.md names exist."""
    root = Path(__file__).parents[2]
    text = (root / "docs" / "SECURITY-TESTS.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) >= 20
    for file, test in named:
        assert f"def {test}(" in (root / file).read_text(), f"{file}::{test}"
    for cve in [
        "CVE-2017-12610",
        "CVE-2018-1288",
        "CVE-2021-38153",
        "CVE-2022-34917",
        "CVE-2023-25194",
        "CVE-2024-27309",
        "CVE-2024-31141",
        "CVE-2024-56128",
        "CVE-2025-27817",
        "CVE-2025-27818",
        "CVE-2025-27819",
    ]:
        assert cve in text
