"""A network whose connections are authenticated by SASL when they are opened.

A protocol gets its connection after the exchange. `server` has SASL listeners of its own. A session
may have an end (connections.max.reauth.ms). Kafka's clients authenticate again on the same
connection; here the connection is retired before that, and its owner opens another one. The server
closes one whose protocol cannot be retired.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar, cast

from penstock.client.errors import SaslRefused
from penstock.client.in_flight import FrameReader
from penstock.client.tokens import InvalidTokenSource, TokenSource
from penstock.config import oauthbearer_settings as oauth
from penstock.config.listeners import security_protocols
from penstock.config.node import NodeConfig
from penstock.config.sasl_settings import SASL_JAAS_CONFIG, mechanism_setting, of_mechanism
from penstock.config.setting import Setting
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.limits import MAX_SASL_RESPONSE_BYTES
from penstock.protocol.apis import api_of
from penstock.protocol.codec import decode
from penstock.protocol.framing import frame_request
from penstock.protocol.headers import decode_response_header
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.security.jaas import JaasConfig, LoginModule, parsed_login
from penstock.security.sasl.mechanism import OAUTHBEARER, PLAIN, SaslClient, SaslFailed
from penstock.security.sasl.oauthbearer import OAuthBearerClient
from penstock.security.sasl.plain import PlainClient
from penstock.security.sasl.scram import ScramClient
from penstock.security.sasl.scram_credential import SCRAM_MECHANISMS
from penstock.world import ProtocolFactory, World
from penstock.world.wrapped_network import WrappedNetwork

T = TypeVar("T")

# Every broker since Kafka 2.2 serves them: the tokens of an authentication are sent before the
# versions are asked for.
_HANDSHAKE_VERSION, _AUTHENTICATE_VERSION = 1, 1
_CLIENT_ID = "penstock-sasl"
_NONCE_BITS = 128
# The part of a session after which its connection is retired, as Kafka's clients choose.
_SESSION_SHARE = 0.85


class InvalidLogin(ValueError):
    """A login that cannot be used. The text has no secret."""


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """What a client authenticates with. Raises InvalidLogin if something is missing."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    is_token: bool = False
    # Of OAUTHBEARER.
    tokens: TokenSource | None = field(default=None, repr=False)

    @staticmethod
    def of(
        mechanism: str,
        jaas: JaasConfig,
        tokens: Callable[[JaasConfig], TokenSource] | None = None,
    ) -> SaslLogin:
        """`tokens` returns the source of tokens of a login by OAUTHBEARER."""
        if jaas.module is LoginModule.OAUTHBEARER:
            if tokens is None:
                raise InvalidLogin("there are no settings of tokens")
            try:
                source = tokens(jaas)
            except InvalidTokenSource as error:
                raise InvalidLogin(str(error)) from None
            return SaslLogin(mechanism, source.client_id or "the token's user", "", tokens=source)
        if not jaas.user or jaas.password is None:
            raise InvalidLogin(
                f"the login for {mechanism} has no username and password. Add username=... and "
                "password=... to sasl.jaas.config"
            )
        return SaslLogin(mechanism, jaas.user, jaas.password, jaas.is_token)

    async def client(self, world: World) -> SaslClient:
        """Raises SaslRefused, and OSError, if there is no token."""
        if self.tokens is not None:
            return OAuthBearerClient(await self.tokens.token(world))
        nonce = f"{world.rng.randrange(2**_NONCE_BITS):032x}"
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self.password)
        mechanism = SCRAM_MECHANISMS[self.mechanism]
        return ScramClient(mechanism, self.user, self.password, nonce, is_token=self.is_token)


class SaslNetwork(WrappedNetwork):
    def __init__(self, world: World, login: SaslLogin) -> None:
        super().__init__(world.network)
        self._world = world
        self._login = login

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Raises OSError, and SaslRefused if the authentication fails."""
        transport, connected = await self._network.connect(_Exchange, host, port)
        exchange = cast(_Exchange, connected)
        try:
            lifetime_ms = await self._authenticate(exchange)
        except BaseException:
            transport.abort()
            raise
        protocol = factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if lifetime_ms > 0:
            _retire_later(protocol, lifetime_ms / 1000 * _SESSION_SHARE)
        return transport, protocol

    async def _authenticate(self, exchange: _Exchange) -> int:
        """Return the lifetime of the session in milliseconds; 0 if it has no end."""
        login = self._login
        handshake = await exchange.call(
            SaslHandshakeRequest(mechanism=login.mechanism),
            _HANDSHAKE_VERSION,
            SaslHandshakeResponse,
        )
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise SaslRefused(
                f"the server does not accept {login.mechanism} ({_name(handshake.error_code)}). "
                f"sasl.mechanism must be one of its mechanisms: {offered}"
            )
        client = await login.client(self._world)
        token: bytes | None = client.first()
        try:
            while token is not None:
                challenge = await exchange.token(token)
                # A thread: deriving a SCRAM key takes milliseconds.
                token = await self._world.offload.thread(client.evaluate, challenge)
        except SaslFailed as error:
            raise SaslRefused(f"authentication as {login.user!r} failed: {error}") from None
        return exchange.lifetime_ms


def with_sasl(world: World, login: SaslLogin) -> World:
    """Return a world whose connections are authenticated."""
    return replace(world, network=SaslNetwork(world, login))


def node_world(
    world: World, config: NodeConfig, listener_name: str, mechanism: Setting[str]
) -> World:
    """Return the world in which a node connects to a listener of other nodes. It authenticates with
    the login of the listener, if that one uses SASL. Raises KafkaError INVALID_CONFIG."""
    protocol = security_protocols(config).get(listener_name)
    if protocol is None or not protocol.is_sasl:
        return world
    name = config[mechanism]
    try:
        jaas = parsed_login(config, listener_name, name)
        if jaas is None:
            raise InvalidLogin("it is not set")
        return with_sasl(
            world, SaslLogin.of(name, jaas, partial(_node_tokens, config, listener_name))
        )
    except InvalidLogin as error:
        setting = mechanism_setting(listener_name, name, SASL_JAAS_CONFIG)
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{setting.name}: {error}") from None


def _node_tokens(config: NodeConfig, listener_name: str, jaas: JaasConfig) -> TokenSource:
    named = (oauth.TOKEN_ENDPOINT_URL, oauth.CLIENT_ID, oauth.CLIENT_SECRET, oauth.SCOPE)
    settings = {
        setting.name: of_mechanism(config, listener_name, OAUTHBEARER, setting) for setting in named
    }
    allowed = oauth.ALLOWED_URLS
    return TokenSource.of(settings, jaas.options, config[allowed], allowed.name)


class Retirable(Protocol):
    def retire(self) -> None:
        """Take no new requests, and close after the last response."""


def _retire_later(protocol: asyncio.BaseProtocol, after_s: float) -> None:
    reference = weakref.ref(protocol)

    def retire() -> None:
        connection = reference()
        if connection is not None and hasattr(connection, "retire"):
            cast(Retirable, connection).retire()

    asyncio.get_running_loop().call_later(after_s, retire)


class _Exchange(asyncio.Protocol):
    """Sends a request at a time and waits for its response."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(MAX_SASL_RESPONSE_BYTES)
        self._received: deque[memoryview] = deque()
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._count = 0
        self.lifetime_ms = 0

    async def call(self, request: object, version: int, response: type[T]) -> T:
        if self._transport is None or self._error is not None:
            raise self._error or ConnectionResetError("the connection is not open")
        frames = frame_request(request, version, self._count, _CLIENT_ID)
        self._transport.write(b"".join(cast("list[bytes]", frames)))
        while not self._received:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        frame = self._received.popleft()
        try:
            header, end = decode_response_header(api_of(type(request)).key, version, frame)
            if header.correlation_id != self._count:
                raise ProtocolError("the response belongs to another request")
            self._count += 1
            return decode(response, version, frame[end:])
        except ProtocolError as error:
            raise _not_sasl(str(error)) from error

    async def token(self, token: bytes) -> bytes:
        response = await self.call(
            SaslAuthenticateRequest(auth_bytes=token),
            _AUTHENTICATE_VERSION,
            SaslAuthenticateResponse,
        )
        if response.error_code:
            raise SaslRefused(response.error_message or _name(response.error_code))
        self.lifetime_ms = response.session_lifetime_ms
        return bytes(response.auth_bytes)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._received.extend(self._frames.feed(data))
        except ProtocolError as error:
            self._error = _not_sasl(str(error))
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if self._error is None:
            self._error = (
                error
                if isinstance(error, OSError)
                else ConnectionResetError(
                    "the server closed the connection during SASL authentication. Is its listener "
                    "one without SASL, and security.protocol another one?"
                )
            )
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _not_sasl(reason: str) -> SaslRefused:
    return SaslRefused(f"the server does not answer with Kafka's protocol: {reason}")


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"
