"""A server with a SASL listener: what is served before authentication, and how failures end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import struct
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import pytest

from penstock.config.node import NodeConfig, read_node_config
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import load
from penstock.handlers.context import RequestContext
from penstock.protocol.codec import decode
from penstock.protocol.framing import frame_request
from penstock.protocol.headers import decode_response_header
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.security.principals import KafkaPrincipal
from penstock.security.sasl.scram import ScramClient, TokenLogin
from penstock.security.sasl.scram_credential import ScramCredential, ScramMechanism, ScramShape
from penstock.security.sasl.scram_keys import credential_of, salted_password
from penstock.server.dispatch import Dispatch, Handler
from penstock.server.server import Server
from penstock.world import World
from penstock.world.real import run
from tests.server.serving import Client, Versions, heartbeat, raw_request
from tests.world.both_worlds import Play, play_simulated

T = TypeVar("T")

HANDSHAKE, API_VERSIONS, AUTHENTICATE, HEARTBEAT, METADATA = 17, 18, 36, 12, 3
# PENSTOCK_EXAMPLES=500 tries 100,000 mutated exchanges.
EXCHANGES = 200 * int(os.environ.get("PENSTOCK_EXAMPLES", "5"))
PLAIN_ALICE = b"\0alice\0alice-secret"
SALT = b"0123456789"
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listeners=CLIENTS://localhost:0,PLAINTEXT://localhost:0,CONTROLLER://localhost:0
listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
sasl.server.max.receive.size=1000
listener.name.clients.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";
"""


@pytest.fixture(params=["real", "sim"])
def play(request: pytest.FixtureRequest) -> Play:
    return run if request.param == "real" else play_simulated


def configured(more: str = "") -> NodeConfig:
    return read_node_config((PROPERTIES + more).encode(), "server.properties")


class Logins:
    """One user, and one delegation token of another one."""

    secret = b"made up"
    token_expires_ms = 0

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        if (mechanism, user) != (ScramMechanism.SHA_256, "alice"):
            return None
        salted = salted_password(mechanism, "scram-secret", SALT, 4_096)
        return credential_of(mechanism, salted, SALT, 4_096)

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        if token_id != "token":
            return None
        salted = salted_password(mechanism, "token-hmac", SALT, 4_096)
        credential = credential_of(mechanism, salted, SALT, 4_096)
        return TokenLogin("bob", self.token_expires_ms, credential)

    def shapes(self, _mechanism: ScramMechanism) -> dict[ScramShape, int]:
        return {}


class Seen:
    """The principals of the requests that reached a handler."""

    def __init__(self) -> None:
        self.principals: list[KafkaPrincipal] = []
        self.with_tokens: list[bool] = []

    def handle(self, _parts: Any, _request: Any, context: RequestContext) -> HeartbeatResponse:
        self.principals.append(context.principal)
        self.with_tokens.append(context.token_authenticated)
        return HeartbeatResponse()


class Served:
    def __init__(self, world: World, server: Server, seen: Seen) -> None:
        self.world, self.server, self.seen = world, server, seen

    async def connect(self, listener: str = "CLIENTS") -> SaslClient:
        port = self.server.ports[listener]
        _, protocol = await self.world.network.connect(SaslClient, "localhost", port)
        return cast(SaslClient, protocol)


class SaslClient(Client):
    # Bytes that are no responses, if there are some to expect.
    raw: bytearray | None = None

    def data_received(self, data: bytes) -> None:
        if self.raw is None:
            super().data_received(data)
        else:
            self.raw += data

    async def call(self, request: object, response: type[T], version: int) -> T:
        before = len(self.responses)
        frames = frame_request(request, version, before + 1, "test")
        self.send(b"".join(cast("list[bytes]", frames)))
        await self.wait_responses(before + 1)
        assert len(self.responses) > before, "the connection was closed without a response"
        correlation, body = self.responses[-1]
        key = {SaslHandshakeRequest: 17, SaslAuthenticateRequest: 36}.get(type(request), 18)
        frame = struct.pack(">i", correlation) + body
        _header, end = decode_response_header(key, version, frame)
        return decode(response, version, frame[end:])

    async def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        request = SaslHandshakeRequest(mechanism=mechanism)
        return await self.call(request, SaslHandshakeResponse, version)

    async def token(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return await self.call(request, SaslAuthenticateResponse, version)

    async def log_in(self) -> SaslAuthenticateResponse:
        await self.handshake("PLAIN")
        return await self.token(PLAIN_ALICE)


def _api_versions(_parts: Any, _request: Any, _context: Any) -> ApiVersionsResponse:
    return ApiVersionsResponse()


@asynccontextmanager
async def serving(
    world: World, more: str = "", logins: Logins | None = None
) -> AsyncIterator[Served]:
    seen = Seen()
    handlers: dict[int, Handler] = {
        HANDSHAKE: load(HANDSHAKE),
        AUTHENTICATE: load(AUTHENTICATE),
        API_VERSIONS: _api_versions,
        HEARTBEAT: seen.handle,
    }
    served = {HANDSHAKE: (0, 1), AUTHENTICATE: (0, 2), API_VERSIONS: (0, 4), HEARTBEAT: (0, 4)}
    versions = {key: Versions(first, last, first) for key, (first, last) in served.items()}
    dispatch = Dispatch(None, versions, handlers.__getitem__)
    server = Server(world, configured(more), dispatch, logins=logins or Logins())
    await server.start()
    await server.accept_clients()
    try:
        yield Served(world, server, seen)
    finally:
        await server.stop(within_s=1)


def test_an_authenticated_client_is_served_as_its_principal(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            client = await served.connect()
            versions = await client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
            assert versions.error_code == 0
            answer = await client.handshake("PLAIN")
            assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256")
            done = await client.token(PLAIN_ALICE)
            assert (done.error_code, done.session_lifetime_ms) == (0, 0)
            client.send(heartbeat(7))
            assert (await client.wait_responses(4))[-1] == 7
            assert served.seen.principals == [KafkaPrincipal("User", "alice")]
            assert served.server.state.authentications.successful == 1

    play(scenario)


def test_scram(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            client = await served.connect()
            side = ScramClient(ScramMechanism.SHA_256, "alice", "scram-secret", "nonce")
            await client.handshake("SCRAM-SHA-256")
            challenge = await client.token(side.first())
            final = side.evaluate(challenge.auth_bytes)
            assert final is not None
            side.evaluate((await client.token(final)).auth_bytes)
            assert side.is_complete
            client.send(heartbeat(7))
            assert (await client.wait_responses(4))[-1] == 7

    play(scenario)


def test_the_bearer_of_a_delegation_token_is_its_owner_until_the_token_expires(play: Play) -> None:
    async def scenario(world: World) -> None:
        logins = Logins()
        logins.token_expires_ms = world.clock.now_ms() + 60_000
        async with serving(world, logins=logins) as served:
            client = await served.connect()
            side = ScramClient(
                ScramMechanism.SHA_256, "token", "token-hmac", "nonce", is_token=True
            )
            await client.handshake("SCRAM-SHA-256")
            final = side.evaluate((await client.token(side.first())).auth_bytes)
            assert final is not None
            done = await client.token(final)
            side.evaluate(done.auth_bytes)
            assert side.is_complete
            assert 0 < done.session_lifetime_ms <= 60_000
            client.send(heartbeat(7))
            assert (await client.wait_responses(4))[-1] == 7
            assert served.seen.principals == [KafkaPrincipal("User", "bob")]
            assert served.seen.with_tokens == [True]

    play(scenario)


@pytest.mark.parametrize(("user", "is_token"), [("token", False), ("alice", True)])
def test_a_token_is_no_user_and_a_user_is_no_token(
    play: Play, user: str, is_token: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            client = await served.connect()
            password = "token-hmac" if user == "token" else "scram-secret"
            side = ScramClient(ScramMechanism.SHA_256, user, password, "nonce", is_token=is_token)
            await client.handshake("SCRAM-SHA-256")
            final = side.evaluate((await client.token(side.first())).auth_bytes)
            assert final is not None
            refused = await client.token(final)
            assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            await client.wait_lost()

    with caplog.at_level(logging.WARNING, "penstock.server"):
        play(scenario)
    (line,) = [record.getMessage() for record in caplog.records if "closed" in record.msg]
    assert f"unknown {'delegation token' if is_token else 'user'} '{user}'" in line


@pytest.mark.parametrize(
    "frames",
    [
        heartbeat(1),
        raw_request(METADATA, 1, 1),
        raw_request(AUTHENTICATE, 0, 1, b"\0\0\0\0"),
        struct.pack(">i", 1) + b"\0",
        struct.pack(">i", 1_001),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_nothing_else_is_served_before_authentication(play: Play, frames: bytes) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            client = await served.connect()
            client.send(frames)
            await client.wait_lost()
            assert client.responses == []
            assert served.seen.principals == []

    play(scenario)


def test_strangers_cannot_fill_the_log(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            for _ in range(5):
                client = await served.connect()
                client.send(heartbeat(1))
                await client.wait_lost()

    with caplog.at_level(logging.INFO, "penstock.server"):
        play(scenario)
    (line,) = [record.getMessage() for record in caplog.records if "closed" in record.msg]
    assert "during SASL handshake" in line


def test_requests_behind_a_failed_authentication_are_not_served(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            client = await served.connect()
            await client.handshake("PLAIN")
            request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong")
            frames = cast("list[bytes]", frame_request(request, 2, 9, "test"))
            client.send(b"".join(frames), heartbeat(10), heartbeat(11))
            await client.wait_lost()
            assert client.order == [1, 9]
            assert served.seen.principals == []

    play(scenario)


@pytest.mark.parametrize(
    ("mechanism", "token", "message"),
    [
        ("PLAIN", b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        ("PLAIN", b"\0nobody\0wrong", "Authentication failed: Invalid username or password"),
        (
            "SCRAM-SHA-256",
            b"nonsense",
            "Authentication failed during authentication due to invalid credentials with SASL "
            "mechanism SCRAM-SHA-256",
        ),
    ],
)
def test_a_failure_is_answered_after_the_delay_and_ends_the_connection(
    play: Play, mechanism: str, token: bytes, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> float:
        async with serving(world) as served:
            client = await served.connect()
            await client.handshake(mechanism)
            began = world.clock.monotonic()
            answer = await client.token(token)
            took = world.clock.monotonic() - began
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == message
            await client.wait_lost()
            assert served.server.state.authentications.failed == 1
            return took

    with caplog.at_level(logging.WARNING, "penstock.server"):
        assert play(scenario) >= 0.09
    (line,) = [record.getMessage() for record in caplog.records if "closed" in record.msg]
    assert "authentication failed" in line
    assert "wrong" not in line.replace("wrong password", "")


def test_a_failure_without_a_delay_is_answered_too(play: Play) -> None:
    async def scenario(world: World) -> None:
        more = "connection.failed.authentication.delay.ms=0\n"
        async with serving(world, more) as served:
            client = await served.connect()
            await client.handshake("PLAIN")
            answer = await client.token(b"\0alice\0wrong")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            await client.wait_lost()

    play(scenario)


def test_an_unknown_mechanism_gets_the_list_and_is_closed(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            client = await served.connect()
            answer = await client.handshake("GSSAPI")
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256")
            await client.wait_lost()

    play(scenario)


@pytest.mark.parametrize("token", [PLAIN_ALICE, b"\0alice\0wrong"])
def test_tokens_without_headers_after_handshake_v0(play: Play, token: bytes) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            client = await served.connect()
            await client.handshake("PLAIN", version=0)
            raw = struct.pack(">i", len(token)) + token
            if token != PLAIN_ALICE:
                client.send(raw, heartbeat(5))
                await client.wait_lost()
                assert served.seen.principals == []
                return
            client.raw = bytearray()
            client.send(raw)
            async with asyncio.timeout(10):
                while client.raw != b"\0\0\0\0":
                    await asyncio.sleep(0.01)
            client.send(heartbeat(5))
            async with asyncio.timeout(10):
                while not served.seen.principals:
                    await asyncio.sleep(0.01)
            assert served.seen.principals == [KafkaPrincipal("User", "alice")]

    play(scenario)


def test_large_requests_are_taken_after_authentication_only(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            client = await served.connect()
            await client.log_in()
            client.send(heartbeat(7, "m" * 5_000))
            assert (await client.wait_responses(3))[-1] == 7

    play(scenario)


def test_a_session_ends_and_a_client_that_authenticates_again_stays() -> None:
    async def scenario(world: World) -> None:
        more = "connections.max.reauth.ms=1200\n"
        async with serving(world, more) as served:
            idle, active = await served.connect(), await served.connect()
            assert (await idle.log_in()).session_lifetime_ms == 1_200
            await active.log_in()
            await asyncio.sleep(1.1)
            assert (await active.log_in()).session_lifetime_ms == 1_200
            await asyncio.sleep(0.2)
            active.send(heartbeat(7))
            assert (await active.wait_responses(5))[-1] == 7
            idle.send(heartbeat(8))
            await idle.wait_lost()
            assert 8 not in idle.order
            counts = served.server.state.authentications
            assert (counts.successful, counts.successful_again) == (2, 1)

    play_simulated(scenario)


@pytest.mark.parametrize("token", [PLAIN_ALICE, b"\0alice\0wrong"])
def test_a_lost_connection_is_freed_at_once(token: bytes) -> None:
    """Without a garbage collection, which is rare: strangers could take memory until then."""

    async def scenario(world: World) -> None:
        async with serving(world, "connection.failed.authentication.delay.ms=0\n") as served:
            client = await served.connect()
            await client.handshake("PLAIN")
            (connection,) = map(weakref.ref, served.server.state.connections)
            gc.disable()
            try:
                await client.token(token)
                client.transport.abort()
                async with asyncio.timeout(10):
                    while connection() is not None:
                        await asyncio.sleep(0.01)
            finally:
                gc.enable()

    run(scenario)


def test_sasl_requests_on_a_plaintext_listener_are_out_of_place(play: Play) -> None:
    async def scenario(world: World) -> None:
        async with serving(world) as served:
            client = await served.connect("PLAINTEXT")
            assert (await client.handshake("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert (await client.token(b"")).error_code == ErrorCode.ILLEGAL_SASL_STATE
            client.send(heartbeat(7))
            assert (await client.wait_responses(3))[-1] == 7

    play(scenario)


def test_a_login_that_cannot_be_parsed_stops_the_server_without_its_secrets() -> None:
    async def scenario(world: World) -> None:
        more = (
            "listener.name.clients.scram-sha-256.sasl.jaas.config="
            "com.sun.security.auth.module.JndiLoginModule required url=secret;\n"
        )
        with pytest.raises(KafkaError, match="not allowed") as raised:
            async with serving(world, more):
                pass
        assert "listener.name.clients.scram-sha-256.sasl.jaas.config" in str(raised.value)
        assert "secret" not in str(raised.value)

    play_simulated(scenario)


def test_mutated_exchanges_are_refused_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Frames before authentication, changed at random: the server ends the connection or answers,
    and no other request gets through."""
    rng = random.Random(18)

    def mutated(frame: bytes) -> bytes:
        data = bytearray(frame)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    del data[at:]
                case _:
                    data[at:at] = rng.randbytes(rng.randrange(9))
            if not data:
                break
        return bytes(data)

    def frames() -> list[bytes]:
        requests = [
            (ApiVersionsRequest(), rng.randrange(5)),
            (SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), rng.randrange(2)),
            (SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), rng.randrange(3)),
            (SaslAuthenticateRequest(auth_bytes=b"c=biws,r=abc,p=AAAA"), rng.randrange(3)),
        ]
        whole = [
            b"".join(cast("list[bytes]", frame_request(request, version, 1, "x")))
            for request, version in requests
        ]
        changed = rng.randrange(len(whole))
        whole[changed] = mutated(whole[changed])
        return whole

    async def scenario(world: World) -> None:
        more = "connection.failed.authentication.delay.ms=0\n"
        async with serving(world, more) as served:
            for _ in range(EXCHANGES):
                client = await served.connect()
                client.send(*frames(), heartbeat(99))
                client.transport.write_eof()
                await client.wait_lost()
                assert served.seen.principals == []
            assert served.server.counters.handler_errors == 0

    with caplog.at_level(logging.ERROR):
        play_simulated(scenario)
    assert [record.getMessage() for record in caplog.records] == []
