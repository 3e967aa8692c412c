"""The authentications of one connection (Kafka's SaslServerAuthenticator). PURE.

    VERSIONS ── ApiVersions ──> HANDSHAKE ── SaslHandshake ──> AUTHENTICATE ──> COMPLETE
        └────────── SaslHandshake ─────────────────┘                └─────────> FAILED

- Before COMPLETE no other request is admitted. One ApiVersions is answered before SaslHandshake.
- After SaslHandshake v0 the tokens come without a Kafka header; after v1 in SaslAuthenticate.
- In COMPLETE, SaslHandshake begins a re-authentication (KIP-368), at most once a second, with the
  same mechanism and for the same principal. Until it is complete, no other request is admitted.
- A session that has a lifetime ends: then only SaslHandshake is admitted.

Times are in seconds of a clock that never goes back; `wall_ms` is in milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import Protocol

from penstock.errors import ErrorCode, ProtocolError
from penstock.security.principals import ANONYMOUS, USER, KafkaPrincipal
from penstock.security.sasl.mechanism import SaslFailed, SaslServer, failed_openly

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
# As in Kafka: a client cannot keep a broker busy with re-authentications.
MIN_REAUTHENTICATION_INTERVAL_S = 1.0


class MakeServer(Protocol):
    """Makes the server side of a mechanism for one authentication."""

    def __call__(self) -> SaslServer: ...


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One mechanism of a listener. With `max_reauth_ms` 0, sessions do not end by themselves."""

    make_server: MakeServer
    max_reauth_ms: int = 0


class State(Enum):
    VERSIONS = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    COMPLETE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The answer to a token. `lifetime_ms` is 0 unless the exchange is complete and the session
    ends."""

    token: bytes = field(repr=False)
    lifetime_ms: int = 0


class SaslSession:
    """`mechanisms` are those of the listener, in the order of its settings."""

    def __init__(self, mechanisms: Mapping[str, Mechanism]) -> None:
        self._mechanisms = mechanisms
        self._server: SaslServer | None = None
        self._mechanism = ""
        self._is_reauthentication = False
        self._began_s = -inf
        self._expires_s = inf
        self._raw = False
        self.state = State.VERSIONS
        self.principal: KafkaPrincipal = ANONYMOUS
        # True if a delegation token authenticated the client.
        self.token_authenticated = False

    @property
    def mechanism(self) -> str:
        """The mechanism of the last handshake."""
        return self._mechanism

    @property
    def mechanism_names(self) -> tuple[str, ...]:
        return tuple(self._mechanisms)

    @property
    def is_complete(self) -> bool:
        return self.state is State.COMPLETE

    @property
    def is_reauthentication(self) -> bool:
        return self._is_reauthentication

    @property
    def takes_raw_tokens(self) -> bool:
        """True if the next frame is a token without a Kafka header."""
        return self._raw and self.state is State.AUTHENTICATE

    def admit(self, api_key: int, now_s: float) -> None:
        """Check a request before it is decoded. Raises ProtocolError if it is not admitted."""
        state = self.state
        if state is State.COMPLETE:
            if now_s > self._expires_s and api_key != SASL_HANDSHAKE:
                raise ProtocolError(
                    "its session has expired, and the client has not authenticated again "
                    "(connections.max.reauth.ms)"
                )
        elif state in (State.VERSIONS, State.HANDSHAKE):
            admitted = (SASL_HANDSHAKE, API_VERSIONS)[: 2 if state is State.VERSIONS else 1]
            if api_key not in admitted:
                raise ProtocolError(
                    f"Unexpected Kafka request with API key {api_key} during SASL handshake. Is "
                    "the client configured for another security protocol?"
                )
        elif state is State.FAILED or api_key != SASL_AUTHENTICATE:
            raise ProtocolError(
                f"Unexpected Kafka request with API key {api_key} during SASL authentication"
            )

    def told_versions(self) -> None:
        """ApiVersions was answered without an error."""
        if self.state is State.VERSIONS:
            self.state = State.HANDSHAKE

    def handshake(self, mechanism: str, version: int, now_s: float) -> ErrorCode:
        """Begin an authentication. An error other than ILLEGAL_SASL_STATE ends the connection."""
        again = self.state is State.COMPLETE
        # A token without a Kafka header would overtake responses that are not ready.
        if again and (version == 0 or now_s - self._began_s < MIN_REAUTHENTICATION_INTERVAL_S):
            return ErrorCode.ILLEGAL_SASL_STATE
        if mechanism not in self._mechanisms:
            self.state = State.FAILED
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if again:
            self._began_s = now_s
        self._is_reauthentication = again
        # Kafka answers the handshake, and refuses another mechanism with the first token.
        if not again or mechanism == self._mechanism:
            self._mechanism = mechanism
            self._server = self._mechanisms[mechanism].make_server()
        else:
            self._server = None
        self._raw = version == 0
        self.state = State.AUTHENTICATE
        return ErrorCode.NONE

    def authenticate(self, token: bytes, now_s: float, wall_ms: int) -> Authenticated:
        """Take the next token of the exchange. Raises SaslFailed, which ends the connection."""
        if self.state is not State.AUTHENTICATE:
            raise failed_openly("SaslAuthenticate request received after successful authentication")
        self.state = State.FAILED
        server = self._server
        if server is None:
            raise failed_openly(
                "the SASL mechanism of a re-authentication must be the first one, "
                f"{self._mechanism}"
            )
        try:
            answer = server.evaluate(token)
        except SaslFailed as error:
            raise SaslFailed(str(error), error.client_message or self._general_message()) from error
        if not server.is_complete:
            self.state = State.AUTHENTICATE
            return Authenticated(answer)
        self._server = None
        self._settle_principal(KafkaPrincipal(USER, server.authorization_id))
        self.token_authenticated = server.is_token
        lifetime_ms = self._lifetime_ms(server.expires_ms, wall_ms)
        self._expires_s = inf if lifetime_ms is None else now_s + lifetime_ms / 1000
        self.state = State.COMPLETE
        return Authenticated(answer, lifetime_ms or 0)

    def _settle_principal(self, principal: KafkaPrincipal) -> None:
        if self._is_reauthentication and principal != self.principal:
            before, after = self.principal, principal
            raise failed_openly(
                "Cannot change principals during re-authentication from "
                f"{before.type}.{before.name}: {after.type}.{after.name}"
            )
        self.principal = principal

    def _lifetime_ms(self, credential_expires_ms: int | None, wall_ms: int) -> int | None:
        """Return how long the session lasts; None if it does not end."""
        most = self._mechanisms[self._mechanism].max_reauth_ms
        ends = [most] if most > 0 else []
        if credential_expires_ms is not None:
            ends.append(credential_expires_ms - wall_ms)
        return max(0, min(ends)) if ends else None

    def _general_message(self) -> str:
        """Kafka's message, which does not tell whether the user exists."""
        again = "re-authentication" if self._is_reauthentication else "authentication"
        return (
            f"Authentication failed during {again} due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )
