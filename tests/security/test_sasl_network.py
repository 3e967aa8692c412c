"""Our clients authenticate when they connect: logins, refusals, and servers that misbehave."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

import pytest

from penstock.client.connection import open_connection
from penstock.client.errors import AuthenticationFailed, ConnectionFailed, SaslRefused
from penstock.client.sasl import InvalidLogin, SaslLogin, node_world, with_sasl
from penstock.client.security import InvalidSecurity, secured
from penstock.config.sasl_settings import SASL_MECHANISM_INTER_BROKER_PROTOCOL
from penstock.errors import KafkaError
from penstock.security.jaas import parse_jaas
from penstock.security.principals import KafkaPrincipal
from penstock.world import World
from penstock.world.real import run
from tests.security.test_sasl_server import Served, configured, serving
from tests.server.serving import Client, heartbeat
from tests.world.both_worlds import Play, play_simulated

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
GOOD = [
    SaslLogin("PLAIN", "alice", "alice-secret"),
    SaslLogin("SCRAM-SHA-256", "alice", "scram-secret"),
]


@pytest.fixture(params=["real", "sim"])
def play(request: pytest.FixtureRequest) -> Play:
    return run if request.param == "real" else play_simulated


async def connect(served: Served, login: SaslLogin, listener: str = "CLIENTS") -> Client:
    world = with_sasl(served.world, login)
    port = served.server.ports[listener]
    _transport, protocol = await world.network.connect(Client, "localhost", port)
    return cast(Client, protocol)


@pytest.mark.parametrize("login", GOOD, ids=lambda login: login.mechanism)
def test_a_protocol_gets_an_authenticated_connection(play: Play, login: SaslLogin) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            client = await connect(served, login)
            client.send(heartbeat(7))
            assert await client.wait_responses(1) == [7]
            assert served.seen.principals == [KafkaPrincipal("User", "alice")]

    play(scenario)


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        (SaslLogin("PLAIN", "alice", "wrong"), "Invalid username or password"),
        (SaslLogin("SCRAM-SHA-256", "alice", "wrong"), "invalid credentials"),
        (SaslLogin("SCRAM-SHA-256", "nobody", "wrong"), "invalid credentials"),
        (SaslLogin("SCRAM-SHA-512", "alice", "x"), "mechanisms: PLAIN, SCRAM-SHA-256"),
    ],
)
def test_a_refusal_has_the_servers_reason(play: Play, login: SaslLogin, reason: str) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            with pytest.raises(SaslRefused, match=reason):
                await connect(served, login)
            assert served.seen.principals == []

    play(scenario)


def test_a_refusal_is_not_retriable(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            with pytest.raises(AuthenticationFailed) as raised:
                await open_connection(
                    with_sasl(world, SaslLogin("PLAIN", "alice", "hidden")),
                    "localhost",
                    served.server.ports["CLIENTS"],
                    client_id="c",
                    connect_timeout_s=5,
                    request_timeout_s=5,
                )
            assert not raised.value.code.retriable
            assert "hidden" not in str(raised.value)

    play(scenario)


def test_a_listener_without_sasl_refuses_the_handshake(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            with pytest.raises(SaslRefused, match="ILLEGAL_SASL_STATE"):
                await connect(served, GOOD[0], "PLAINTEXT")

    play(scenario)


class Misbehaving(asyncio.Protocol):
    """Answers a client's first bytes with others, and closes."""

    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, _data: bytes) -> None:
        self.transport.write(self.answer)
        self.transport.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">ii", 4, 0),
        struct.pack(">iihi", 10, 7, 0, 0),
        struct.pack(">iihi", 10, 0, 0, 2**31 - 1),
    ],
)
def test_a_server_that_misbehaves_is_left(play: Play, answer: bytes) -> None:
    async def scenario(world: World) -> None:
        factory = type("Server", (Misbehaving,), {"answer": answer})
        listener = await world.network.listen(factory, "localhost", 0)
        try:
            with pytest.raises(ConnectionFailed):
                await open_connection(
                    with_sasl(world, GOOD[0]),
                    "localhost",
                    listener.port,
                    client_id="c",
                    connect_timeout_s=5,
                    request_timeout_s=5,
                )
        finally:
            listener.close()

    play(scenario)


def test_logins_of_java_settings() -> None:
    assert SaslLogin.of("PLAIN", parse_jaas(f"{PLAIN} username=a password=b;", "PLAIN")) == (
        SaslLogin("PLAIN", "a", "b")
    )
    token = parse_jaas(f"{SCRAM} username=a password=b tokenauth=true;", "SCRAM-SHA-512")
    assert SaslLogin.of("SCRAM-SHA-512", token).is_token
    with pytest.raises(InvalidLogin, match="no username"):
        SaslLogin.of("PLAIN", parse_jaas(f"{PLAIN} password=b;", "PLAIN"))
    assert "hidden" not in repr(SaslLogin("PLAIN", "a", "hidden"))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security.protocol": "TLS"}, "Invalid value TLS"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism=GSSAPI is not supported"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
            "sasl.jaas.config is not set",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"{PLAIN} username=a password=hidden",
            },
            "semi-colon",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "com.sun.JndiLoginModule required url=hidden;",
            },
            "not allowed",
        ),
    ],
)
def test_unusable_settings_are_refused_without_their_secrets(
    settings: dict[str, str], reason: str
) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(InvalidSecurity, match=reason) as raised:
            secured(world, settings)
        assert "hidden" not in str(raised.value)

    play_simulated(scenario)


def test_a_plaintext_client_keeps_its_network() -> None:
    async def scenario(world: World) -> None:
        assert secured(world, {"client.id": "x"}) is world

    play_simulated(scenario)


def test_a_node_needs_a_login_for_a_sasl_listener() -> None:
    config = configured()

    async def scenario(world: World) -> None:
        setting = SASL_MECHANISM_INTER_BROKER_PROTOCOL
        assert node_world(world, config, "PLAINTEXT", setting) is world
        with pytest.raises(KafkaError, match=r"gssapi\.sasl\.jaas\.config: it is not set"):
            node_world(world, config, "CLIENTS", setting)

    play_simulated(scenario)


def test_a_connection_is_retired_before_its_session_ends() -> None:
    """No request fails: the connection closes between two requests, and its owner notices."""

    async def scenario(world: World) -> None:
        async with serving(world, "connections.max.reauth.ms=10000\n") as served:
            connection = await open_connection(
                with_sasl(world, GOOD[1]),
                "localhost",
                served.server.ports["CLIENTS"],
                client_id="c",
                connect_timeout_s=5,
                request_timeout_s=5,
            )
            await asyncio.sleep(8.4)
            closed = [connection.closed]
            task = asyncio.ensure_future(connection.negotiate_versions(5))
            await asyncio.sleep(0)
            connection.retire()
            closed.append(connection.closed)
            await task
            closed.append(connection.closed)
            assert closed == [False, False, True]
            again = await open_connection(
                with_sasl(world, GOOD[1]),
                "localhost",
                served.server.ports["CLIENTS"],
                client_id="c",
                connect_timeout_s=5,
                request_timeout_s=5,
            )
            await asyncio.sleep(8.6)
            assert again.closed

    play_simulated(scenario)
