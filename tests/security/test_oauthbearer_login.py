"""Clients and nodes of ours log in with OAUTHBEARER: tokens from a file, and from an issuer."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

import penstock
from penstock.client.client import Client
from penstock.client.security import InvalidSecurity, check_security
from penstock.client.tokens import ALLOWED_URLS_VARIABLE, InvalidTokenSource, TokenSource
from penstock.errors import ErrorCode, KafkaError
from penstock.security.setup.authority import Authority
from penstock.world import World
from penstock.world.real import real_world, run

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SIGNER = ec.generate_private_key(ec.SECP256R1())


def token(name: str, *, seconds: float = 3600.0) -> str:
    now = time.time()
    claims = {"sub": name, "iat": now - 10, "exp": now + seconds}
    return jwt.encode(claims, SIGNER, "ES256")


class Issuer(NamedTuple):
    url: str
    ca: Path
    requests: list[tuple[str, dict[str, list[str]]]]


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    """An https server that gives tokens to the client `robot`."""
    directory = tmp_path_factory.mktemp("issuer")
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.create("issuers", now)
    (directory / "ca.pem").write_bytes(authority.certificate_pem)
    (directory / "server.pem").write_bytes(authority.issue("issuer", ["localhost"], now))
    requests: list[tuple[str, dict[str, list[str]]]] = []
    expected = "Basic " + base64.b64encode(b"robot:r%2Fsecret").decode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            form = parse_qs(self.rfile.read(length).decode())
            authorization = self.headers["Authorization"]
            requests.append((authorization, form))
            if authorization != expected:
                self.send_error(401)
                return
            answer: dict[str, Any] = {"access_token": token("robot"), "expires_in": 3600}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Issuer(
            f"https://localhost:{server.server_port}/token", directory / "ca.pem", requests
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Node(NamedTuple):
    servers: str
    ca: Path


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose links to itself, as broker and controller, use a token from a file."""
    directory = tmp_path_factory.mktemp("node")
    keys, own = directory / "keys.json", directory / "token"
    keys.write_text(json.dumps({"keys": [ECAlgorithm.to_jwk(SIGNER.public_key(), as_dict=True)]}))
    own.write_text(token("node") + "\n")
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.create("nodes", now)
    (directory / "ca.pem").write_bytes(authority.certificate_pem)
    (directory / "node.pem").write_bytes(authority.issue("node", ["127.0.0.1"], now))
    settings = {
        # PLAINTEXT is the name of the listener that a cluster of several brokers has.
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": f"{MODULE};",
        "listener.name.controller.oauthbearer.sasl.jaas.config": f"{MODULE};",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.token.endpoint.url": own.as_uri(),
        "penstock.sasl.oauthbearer.allowed.urls": f"{keys.as_uri()},{own.as_uri()}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:robot",
    }
    with penstock.Cluster(settings, brokers=2) as cluster:
        yield Node(cluster.bootstrap_servers, directory / "ca.pem")


def create_topic(node: Node, name: str, **settings: str) -> None:
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE};",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(node.ca),
        **{key.replace("_", "."): value for key, value in settings.items()},
    }

    async def work(world: Any) -> None:
        async with Client(world, node.servers, security=security) as client:
            await client.admin.create_topic(name, partitions=1, replication_factor=2)

    run(work)


URL = "sasl_oauthbearer_token_endpoint_url"


def test_a_token_from_a_file(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    monkeypatch.setenv(ALLOWED_URLS_VARIABLE, f"https://other.example,{file.as_uri()}")
    # A file is read for each connection, so that tokens can be renewed.
    for content, code in (
        (token("robot", seconds=-3600), ErrorCode.SASL_AUTHENTICATION_FAILED),
        (token("stranger"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("no token", ErrorCode.SASL_AUTHENTICATION_FAILED),
    ):
        file.write_text(content)
        with pytest.raises(KafkaError) as raised:
            create_topic(node, "refused", **{URL: file.as_uri()})
        assert raised.value.code in (code, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert content not in str(raised.value)
    file.write_text(token("robot"))
    create_topic(node, "by-file", **{URL: file.as_uri()})


def test_a_token_from_an_issuer(
    node: Node, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ALLOWED_URLS_VARIABLE, issuer.url)
    both = tmp_path / "both.pem"
    both.write_bytes(node.ca.read_bytes() + issuer.ca.read_bytes())
    login = f'{MODULE} clientId="robot" clientSecret="r/secret" scope="kafka";'
    create_topic(
        Node(node.servers, both), "by-issuer", **{URL: issuer.url, "sasl_jaas_config": login}
    )
    # One request for all connections: the token is kept.
    assert len(issuer.requests) == 1
    assert issuer.requests[0][1] == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    wrong = login.replace("r/secret", "guess")
    with pytest.raises(KafkaError, match="answered 401") as raised:
        create_topic(
            Node(node.servers, both), "refused", **{URL: issuer.url, "sasl_jaas_config": wrong}
        )
    assert "guess" not in str(raised.value)


def test_urls_outside_the_list_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE};",
    }
    monkeypatch.setenv(ALLOWED_URLS_VARIABLE, "file:///allowed,https://issuer.example/token")
    for url, reason in (
        (None, "needs sasl.oauthbearer.token.endpoint.url"),
        ("file:///etc/passwd", "is not allowed"),
        ("http://issuer.example/token", "must be a file: or https: URL"),
        ("https://issuer.example/token", "clientSecret"),
    ):
        given = settings if url is None else {**settings, URL.replace("_", "."): url}
        with pytest.raises(InvalidSecurity, match=reason):
            check_security(given)
    # A client's own settings do not widen the list.
    own = {**settings, "penstock.sasl.oauthbearer.allowed.urls": tmp_path.as_uri()}
    with pytest.raises(InvalidSecurity, match="is not allowed"):
        check_security({**own, URL.replace("_", "."): tmp_path.as_uri()})


def test_an_issuer_that_does_not_answer_takes_one_thread() -> None:
    """Links to all brokers log in again and again meanwhile, and fetches read the disk with the
    same threads."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        silent.setblocking(False)
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/token"
        source = TokenSource(url, "node", "secret")

        async def login(world: World) -> str:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    return await source.token(world)
            return "gave up"

        async def scenario() -> tuple[set[str], str]:
            world = real_world()
            found = await asyncio.gather(*(login(world) for _ in range(20)))
            found += await asyncio.gather(*(login(world) for _ in range(20)))
            connected, _address = silent.accept()
            with pytest.raises(BlockingIOError):
                silent.accept()
            async with asyncio.timeout(5):
                read = await world.offload.read(str, "read")
            waiting = asyncio.ensure_future(source.token(world))
            await asyncio.sleep(0)
            connected.close()
            with pytest.raises(URLError):  # and not for the ones that gave up
                await waiting
            return set(found), read

        assert asyncio.run(scenario()) == ({"gave up"}, "read")


def test_a_source_does_not_show_its_secret() -> None:
    source = TokenSource.of(
        {"sasl.oauthbearer.token.endpoint.url": "https://a/t"},
        {"clientId": "me", "clientSecret": "very-secret"},
        ("https://a/t",),
        "the list",
    )
    assert "very-secret" not in repr(source)
    with pytest.raises(InvalidTokenSource):
        TokenSource.of({}, {}, (), "the list")
