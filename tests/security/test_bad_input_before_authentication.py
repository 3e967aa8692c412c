"""Attempts of strangers, each kind many times: the node refuses them, writes few lines about them,
and serves another client meanwhile.

PENSTOCK_DRILL=1 (`make drill ONLY=strangers`) runs all kinds at once for half a minute, and
measures the other client. It needs an otherwise idle machine.
"""

from __future__ import annotations

import base64
import json
import multiprocessing
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from penstock.errors import ErrorCode
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.security.sasl.scram import ScramClient
from penstock.security.sasl.scram_credential import ScramMechanism
from tests.e2e.raw_connection import encoded
from tests.security.attacked_node import (
    PLAIN_PASSWORD,
    SCRAM_PASSWORD,
    AttackedNode,
    attacked_node,
)
from tests.security.bystander import Bystander
from tests.security.secured_cluster import token_of
from tests.tls.certificates import Authority

MEASURED = os.environ.get("PENSTOCK_DRILL") == "1"
TIMES = 15
SIEGE_S = 30.0 if MEASURED else 2.0
P99_MS = 100.0
# Lines a second that refusals may take: five of TLS, and one every few seconds of SASL.
LINES_PER_S = 6
OTHER_KEY = rsa.generate_private_key(65_537, 2_048)
OTHER_AUTHORITY = Authority("Other")
# An attempt returns why it was refused.
Attempt = Callable[[AttackedNode], str]
ATTEMPTS: dict[str, Attempt] = {}


def attempt(function: Attempt) -> Attempt:
    ATTEMPTS[function.__name__] = function
    return function


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    with attacked_node(tmp_path_factory.mktemp("strangers")) as made:
        yield made
        assert "Traceback" not in made.process.log


# SASL


def last_answer(node: AttackedNode, mechanism: str, *tokens: bytes) -> str:
    """Send tokens until one is refused. Return the error, and check that the connection is
    closed."""
    with node.connect() as connection:
        assert connection.handshake(mechanism) == 0
        for token in tokens:
            answer = connection.token(token)
            if answer.error_code:
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert connection.is_closed_by_broker()
                return answer.error_message or ""
    raise AssertionError("the node took all tokens")


@attempt
def wrong_password(node: AttackedNode) -> str:
    return last_answer(node, "PLAIN", b"\0alice\0wrong")


@attempt
def wrong_scram_password(node: AttackedNode) -> str:
    side = ScramClient(ScramMechanism.SHA_512, "alice", "wrong", "nonce")
    with node.connect() as connection:
        assert connection.handshake("SCRAM-SHA-512") == 0
        final = side.evaluate(connection.token(side.first()).auth_bytes)
        answer = connection.token(final or b"")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.is_closed_by_broker()
        return answer.error_message or ""


@attempt
def truncated_scram(node: AttackedNode) -> str:
    side = ScramClient(ScramMechanism.SHA_256, "alice", SCRAM_PASSWORD, "nonce")
    with node.connect() as connection:
        assert connection.handshake("SCRAM-SHA-256") == 0
        final = side.evaluate(connection.token(side.first()).auth_bytes) or b""
        answer = connection.token(final[:-7])
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.is_closed_by_broker()
        return answer.error_message or ""


def bearer(token: str) -> bytes:
    return f"n,,\1auth=Bearer {token}\1\1".encode()


@attempt
def expired_token(node: AttackedNode) -> str:
    past = int(time.time()) - 3600
    return last_answer(node, "OAUTHBEARER", bearer(node.token(iat=past - 60, exp=past)), b"\1")


@attempt
def token_of_another_key(node: AttackedNode) -> str:
    return last_answer(node, "OAUTHBEARER", bearer(token_of(OTHER_KEY)), b"\1")


@attempt
def token_without_a_signature(node: AttackedNode) -> str:
    claims = jwt.decode(node.token(), options={"verify_signature": False})
    unsigned = jwt.encode(claims, "", algorithm="none")
    return last_answer(node, "OAUTHBEARER", bearer(unsigned), b"\1")


@attempt
def token_whose_signature_was_cut(node: AttackedNode) -> str:
    """The header still names RS256, and the claims another user."""
    head, body, _signature = node.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    forged = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "root"}).encode()).decode()
    return last_answer(node, "OAUTHBEARER", bearer(f"{head}.{forged.rstrip('=')}."), b"\1")


@attempt
def request_without_authentication(node: AttackedNode) -> str:
    return closed(node, "CLIENTS", encoded(MetadataRequest(topics=()), 9))


@attempt
def oversized_frame(node: AttackedNode) -> str:
    return closed(node, "CLIENTS", struct.pack(">i", 100_000_000) + bytes(1_000))


def closed(node: AttackedNode, listener: str, data: bytes) -> str:
    with node.connect(listener) as connection:
        connection.send(data)
        assert connection.is_closed_by_broker()
        return "closed"


# TLS


@attempt
def plaintext_to_tls(node: AttackedNode) -> str:
    return closed(node, "SECURE", encoded(MetadataRequest(topics=()), 9))


def hello_of(version: bytes, *, sslv2: bool = False) -> bytes:
    """Return the ClientHello of a client that has no newer version than this one."""
    if sslv2:
        body = b"\1" + version + struct.pack(">HHH", 3, 0, 16) + b"\0\0\x2f" + bytes(16)
        return struct.pack(">H", 0x8000 | len(body)) + body
    body = version + bytes(32) + b"\0" + struct.pack(">HHH", 4, 0x002F, 0x0035) + b"\1\0"
    message = b"\1" + len(body).to_bytes(3) + body
    return b"\x16" + version + struct.pack(">H", len(message)) + message


def refused_hello(node: AttackedNode, hello: bytes) -> str:
    """Send a ClientHello. Return the alert, or "closed"."""
    with socket.create_connection(("127.0.0.1", node.port("SECURE")), 30) as end:
        end.sendall(hello)
        data = b""
        try:
            while more := end.recv(100):
                data += more
        except ConnectionResetError:
            return "closed"
    if not data:
        return "closed"
    # A record of type alert, fatal: handshake_failure or protocol_version.
    assert (data[0], data[5]) == (21, 2), data
    assert data[6] in (40, 70), data
    return "alert"


@attempt
def sslv2(node: AttackedNode) -> str:
    return refused_hello(node, hello_of(b"\0\2", sslv2=True))


@attempt
def sslv3(node: AttackedNode) -> str:
    return refused_hello(node, hello_of(b"\3\0"))


@attempt
def tls_1_0(node: AttackedNode) -> str:
    return refused_hello(node, hello_of(b"\3\1"))


@attempt
def tls_1_1(node: AttackedNode) -> str:
    return refused_hello(node, hello_of(b"\3\2"))


def handshake(node: AttackedNode, context: ssl.SSLContext, listener: str, name: str) -> str:
    """Connect over TLS, and return why that fails. The node refuses a certificate of TLS 1.3 after
    the client's handshake."""
    try:
        with (
            socket.create_connection(("127.0.0.1", node.port(listener)), 30) as plain,
            context.wrap_socket(plain, server_hostname=name) as end,
        ):
            end.sendall(encoded(MetadataRequest(topics=()), 9))
            if not end.recv(1):
                return "closed"
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError) as error:
        return str(error)
    raise AssertionError("the node served the client")


@attempt
def certificate_of_another_authority(node: AttackedNode) -> str:
    context = node.trust
    file = node.directory / "other.pem"
    if not file.exists():
        OTHER_AUTHORITY.sign("alice").write_pem(file)
    context.load_cert_chain(file)
    return handshake(node, context, "MUTUAL", "localhost")


@attempt
def no_certificate(node: AttackedNode) -> str:
    return handshake(node, node.trust, "MUTUAL", "localhost")


@attempt
def client_that_expects_another_name(node: AttackedNode) -> str:
    return handshake(node, node.trust, "SECURE", "broker.example")


@attempt
def handshake_that_is_left(node: AttackedNode) -> str:
    end, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = node.trust.wrap_bio(end, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    with socket.create_connection(("127.0.0.1", node.port("SECURE")), 30) as plain:
        plain.sendall(outgoing.read())
        plain.recv(1)
        return "left"


@pytest.mark.parametrize("name", list(ATTEMPTS))
def test_strangers_are_refused_and_logged_a_few_times(node: AttackedNode, name: str) -> None:
    before, started = len(node.process.log), time.monotonic()
    reasons = Counter(ATTEMPTS[name](node) for _ in range(TIMES))
    assert sum(reasons.values()) == TIMES
    for reason in reasons:
        for secret in (PLAIN_PASSWORD, SCRAM_PASSWORD):
            assert secret not in reason
    lines = node.process.log[before:].splitlines()
    seconds = time.monotonic() - started
    assert len(lines) <= LINES_PER_S * (1 + seconds), lines
    assert not re.search("plain-secret|scram-secret|eyJ", "".join(lines)), "no secret, no token"
    with node.connect() as connection:
        connection.log_in("alice", PLAIN_PASSWORD)
        assert connection.request(MetadataRequest(topics=()), 9, MetadataResponse).brokers


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_a_downgrade_is_detected(node: AttackedNode) -> None:
    """RFC 7507: a client that falls back to TLS 1.2, since something cut its handshakes of TLS 1.3,
    says so, and the node refuses it."""
    done = subprocess.run(
        [
            *("openssl", "s_client", "-connect", f"127.0.0.1:{node.port('SECURE')}"),
            *("-no_tls1_3", "-fallback_scsv"),
        ],
        input=b"",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"inappropriate fallback" in done.stderr


def attack(node: AttackedNode, results: Connection) -> None:
    """Make attempts of all kinds at once, in a process of its own. Send how many of each there
    were, and the failures."""
    os.nice(5)  # the other client and the node must not wait for a core behind the strangers
    stopping = threading.Event()
    done: Counter[str] = Counter()
    failures: list[str] = []

    def repeat(name: str, work: Attempt) -> None:
        while not stopping.is_set():
            try:
                work(node)
            except (AssertionError, OSError) as error:
                failures.append(f"{name}: {error!r}")
                return
            done[name] += 1

    threads = [threading.Thread(target=repeat, args=each) for each in ATTEMPTS.items()]
    for thread in threads:
        thread.start()
    stopping.wait(SIEGE_S)
    stopping.set()
    for thread in threads:
        thread.join()
    results.send((done, failures))


def test_strangers_do_not_delay_another_client(
    node: AttackedNode, record_property: Callable[[str, object], None]
) -> None:
    """All kinds at once."""
    before = node.process.resident_bytes()
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe()
    process = context.Process(target=attack, args=(node, sending))
    process.start()
    try:
        with Bystander(node.cluster.servers("PLAINTEXT")) as bystander:
            assert receiving.poll(SIEGE_S + 60), "the strangers did not end"
            done, failures = receiving.recv()
    finally:
        process.join(60)
        process.kill()
    bystander.check()
    assert failures == []
    assert set(done) == set(ATTEMPTS)
    grown = (node.process.resident_bytes() - before) / 1024 / 1024
    note = (
        f"{done.total()} attempts of {len(ATTEMPTS)} kinds of strangers in {SIEGE_S:.0f} s; "
        f"{bystander.report()}; memory grew by {grown:.0f} MB"
    )
    record_property("note", note)
    assert grown < 32, note
    if MEASURED:
        assert bystander.percentile_ms(99) < P99_MS, note
