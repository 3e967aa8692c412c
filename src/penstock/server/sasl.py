"""SASL listeners: which requests a connection may send before it is authenticated.

A SASL listener gets a `SaslDispatch` in place of its `Dispatch`, so that other listeners do nothing
more per request. A connection that is not authenticated may send frames of up to
sasl.server.max.receive.size only (CVE-2022-34917), and each is looked at by its API key before it
is decoded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.config import oauthbearer_settings as oauth
from penstock.config.listeners import Listener
from penstock.config.node import NodeConfig
from penstock.config.sasl_settings import (
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
    SASL_JAAS_CONFIG,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    enabled_mechanisms,
    max_reauth_ms,
    mechanism_setting,
    of_listener,
    of_mechanism,
)
from penstock.config.setting import Setting
from penstock.errors import ProtocolError
from penstock.handlers.authentication import Authentication, AuthenticationCounts, failure_reason
from penstock.handlers.context import RequestContext
from penstock.security.jaas import JaasConfig, JaasError, parse_jaas, parsed_login
from penstock.security.sasl.mechanism import OAUTHBEARER, PLAIN, SaslFailed
from penstock.security.sasl.oauthbearer import OAuthBearerServer, TokenChecker
from penstock.security.sasl.plain import PlainServer
from penstock.security.sasl.scram import ScramServer, TokenLogin
from penstock.security.sasl.scram_credential import (
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    ScramShape,
)
from penstock.security.sasl.session import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    Mechanism,
    SaslSession,
)
from penstock.server.dispatch import Dispatch, Origin
from penstock.server.state import Settings
from penstock.world import World

if TYPE_CHECKING:
    from penstock.server.jwks import Jwks

T = TypeVar("T")

log = logging.getLogger(__name__)

_KEY_BYTES = 2
_NONCE_BITS = 128


class ScramLogins(Protocol):
    """The credentials in the metadata."""

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None: ...

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None: ...

    @property
    def secret(self) -> bytes:
        """The secret that makes up the salts of unknown users."""

    def shapes(self, mechanism: ScramMechanism) -> Mapping[ScramShape, int]:
        """Return how many users have credentials of a shape."""


class SaslListener:
    """The SASL settings of a listener. Raises KafkaError INVALID_CONFIG for a login that cannot be
    parsed."""

    def __init__(
        self,
        listener: Listener,
        config: NodeConfig,
        world: World,
        settings: Callable[[], Settings],
        logins: ScramLogins,
        counts: AuthenticationCounts,
    ) -> None:
        self._world = world
        self._rng = world.rng
        # The keys of tokens, with OAUTHBEARER.
        self.jwks: Jwks | None = None
        self._settings = settings
        self._logins = logins
        self._counts = counts
        self._failure_delay_s = config[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS] / 1000
        self.max_receive_bytes = of_listener(config, listener.name, SASL_SERVER_MAX_RECEIVE_SIZE)
        self._mechanisms: Mapping[str, Mechanism] = {
            name: self._mechanism(config, listener.name, name)
            for name in enabled_mechanisms(config, listener.name)
        }

    def authentication(
        self,
        accepted: Callable[[], None],
        refused: Callable[[str], None],
        send: Callable[[bytes], None],
    ) -> Authentication:
        """Return the authentication of a new connection."""
        return Authentication(
            SaslSession(self._mechanisms),
            self._failure_delay_s,
            self._world.clock.now_ms,
            self._counts,
            accepted,
            refused,
            send,
        )

    def _mechanism(self, config: NodeConfig, listener_name: str, name: str) -> Mechanism:
        login = parsed_login(config, listener_name, name)
        lifetime_ms = max_reauth_ms(config, listener_name, name)
        if name == PLAIN:
            setting = mechanism_setting(listener_name, name, SASL_JAAS_CONFIG)
            users = PlainUsers(lambda: self._settings()[setting], setting.name, login)
            return Mechanism(lambda: PlainServer(users.current()), lifetime_ms)
        if name == OAUTHBEARER:
            checker = self._token_checker(config, listener_name)
            return Mechanism(lambda: OAuthBearerServer(checker), lifetime_ms)
        scram = SCRAM_MECHANISMS[name]
        return Mechanism(lambda: self._scram_server(scram), lifetime_ms)

    def _token_checker(self, config: NodeConfig, listener_name: str) -> TokenChecker:
        # Imported on first use, so that a node without OAUTHBEARER starts quickly.
        from penstock.security.jwt_checker import ExpectedClaims, JwtChecker
        from penstock.server.jwks import Jwks

        def value(setting: Setting[T]) -> T:
            return of_mechanism(config, listener_name, OAUTHBEARER, setting)

        jwks = self.jwks = Jwks(
            self._world,
            value(oauth.JWKS_ENDPOINT_URL) or "",
            config[oauth.ALLOWED_URLS],
            refresh_s=value(oauth.JWKS_ENDPOINT_REFRESH_MS) / 1000,
            backoff_s=value(oauth.JWKS_ENDPOINT_RETRY_BACKOFF_MS) / 1000,
            max_backoff_s=value(oauth.JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS) / 1000,
        )
        expected = ExpectedClaims(
            value(oauth.EXPECTED_AUDIENCE),
            value(oauth.EXPECTED_ISSUER),
            value(oauth.CLOCK_SKEW_SECONDS),
            value(oauth.SUB_CLAIM_NAME),
        )
        return JwtChecker(lambda: jwks.keys, expected, self._world.clock.now_ms, jwks.missing)

    def _scram_server(self, mechanism: ScramMechanism) -> ScramServer:
        logins = self._logins
        return ScramServer(
            mechanism,
            partial(logins.find, mechanism),
            f"{self._rng.randrange(2**_NONCE_BITS):032x}",
            logins.secret,
            partial(logins.find_token, mechanism),
            logins.shapes(mechanism),
        )


class PlainUsers:
    """The users of PLAIN. Their login may be altered while the node runs (KIP-226)."""

    def __init__(self, text: Callable[[], str | None], name: str, login: JaasConfig | None) -> None:
        self._text = text
        self._name = name
        self._last = text()
        self._users = {} if login is None else login.users

    def current(self) -> Mapping[str, str]:
        """Return the passwords by user. A login that cannot be parsed leaves the last users."""
        text = self._text()
        if text != self._last:
            self._last = text
            try:
                self._users = {} if text is None else parse_jaas(text, PLAIN).users
            except JaasError as error:
                log.warning("%s was altered to %s. The users before stay", self._name, error)
        return self._users


class SaslDispatch:
    """Passes the requests of authenticated connections on, and those of an authentication."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    def run(self, frame: memoryview, origin: Origin, now: float) -> tuple[RequestContext, object]:
        authentication = origin.connection.authentication
        if authentication is None:
            raise ProtocolError("a connection of a SASL listener has no authentication")
        session = authentication.session
        if session.takes_raw_tokens:
            return self._take_token(bytes(frame), authentication, origin, now)
        if len(frame) < _KEY_BYTES:
            raise ProtocolError(f"a request of {len(frame)} bytes has no API key")
        key = int.from_bytes(frame[:_KEY_BYTES], signed=True)
        session.admit(key, now)
        context, result = self._dispatch.run(frame, origin, now)
        if key == API_VERSIONS and getattr(result, "error_code", None) == 0:
            session.told_versions()
        return context, result

    def decoded_bytes(self, context: RequestContext, frame_bytes: int) -> int:
        return self._dispatch.decoded_bytes(context, frame_bytes)

    def _take_token(
        self, token: bytes, authentication: Authentication, origin: Origin, now: float
    ) -> tuple[RequestContext, object]:
        """Take a token without a Kafka header. A refusal is not answered, as in Kafka: there is no
        response for it."""
        context = RequestContext(
            SASL_AUTHENTICATE,
            0,
            0,
            None,
            origin.listener_name,
            origin.local_host,
            origin.local_port,
            origin.peer,
            now,
            origin.connection,
        )
        try:
            answer = authentication.authenticate(origin.connection, token, now)
        except SaslFailed as error:
            reason = failure_reason(error, authentication.session.mechanism)
            return context, authentication.fail(None, reason)
        authentication.send(answer.token)
        return context, None
