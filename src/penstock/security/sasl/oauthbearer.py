"""OAUTHBEARER (RFC 7628): the client sends a bearer token, and the server checks it. PURE.

client first:  n,,^Aauth=Bearer TOKEN^A^A        (^A is the byte 1)
server:        nothing, or {"status":"invalid_token"}
client:        ^A, after an error; then the server refuses the authentication
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from penstock.limits import MAX_OAUTH_MESSAGE_BYTES
from penstock.security.sasl.mechanism import (
    OAUTHBEARER,
    SaslFailed,
    decode_utf8,
    failed_openly,
)

_SEPARATOR = "\x01"
_ACKNOWLEDGED = b"\x01"
_INVALID_TOKEN = '{"status":"invalid_token"}'
_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,\x00\x01]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class InvalidToken(Exception):
    """The reason why a token is refused, for the log of this node."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """`expires_ms` is in milliseconds since 1970."""

    principal: str
    expires_ms: int


class TokenChecker(Protocol):
    def check(self, token: str) -> VerifiedToken:
        """Verify signature and claims of a token. Raises InvalidToken."""


class OAuthBearerServer:
    is_token = False

    def __init__(self, checker: TokenChecker) -> None:
        self._checker = checker
        self._verified: VerifiedToken | None = None
        self._refusal: str | None = None
        self._over = False

    @property
    def is_complete(self) -> bool:
        return self._verified is not None

    @property
    def authorization_id(self) -> str:
        if self._verified is None:
            raise SaslFailed("the authentication is not complete")
        return self._verified.principal

    @property
    def expires_ms(self) -> int | None:
        return None if self._verified is None else self._verified.expires_ms

    def evaluate(self, response: bytes) -> bytes:
        if self._over:
            raise SaslFailed("an OAUTHBEARER message came after the end of the exchange")
        if self._refusal is not None:
            self._over = True
            raise SaslFailed(self._refusal, _INVALID_TOKEN)
        self._over = True
        token, authorization_id = parse_first(response)
        try:
            verified = self._checker.check(token)
        except InvalidToken as error:
            # The client acknowledges the error before it is refused.
            self._over, self._refusal = False, str(error)
            return _INVALID_TOKEN.encode()
        if authorization_id not in ("", verified.principal):
            raise failed_openly(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        self._verified = verified
        return b""


class OAuthBearerClient:
    mechanism = OAUTHBEARER

    def __init__(self, token: str) -> None:
        self._token = token
        self._error: str | None = None
        self.is_complete = False

    def first(self) -> bytes:
        return f"n,,{_SEPARATOR}auth=Bearer {self._token}{_SEPARATOR}{_SEPARATOR}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        if self._error is not None:
            raise SaslFailed(f"the server refused the token: {self._error}")
        if challenge:
            self._error = decode_utf8(challenge[:200], OAUTHBEARER)
            return _ACKNOWLEDGED
        self.is_complete = True
        return None


def parse_first(message: bytes) -> tuple[str, str]:
    """Return the token and the authorization id of a client's first message. Raises SaslFailed."""
    if len(message) > MAX_OAUTH_MESSAGE_BYTES:
        raise failed_openly(f"Invalid OAUTHBEARER client first message of {len(message)} bytes")
    match = _FIRST.fullmatch(decode_utf8(message, OAUTHBEARER))
    if match is None:
        raise failed_openly("Invalid OAUTHBEARER client first message")
    pairs = [pair.partition("=") for pair in match["pairs"].split(_SEPARATOR) if pair]
    found = [value for name, _equals, value in pairs if name == "auth"]
    if len(found) != 1:
        raise failed_openly("Invalid OAUTHBEARER client first message: 'auth' not specified once")
    auth = _AUTH.fullmatch(found[0])
    if auth is None or auth["scheme"].lower() != "bearer":
        raise failed_openly("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    authzid = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return auth["token"], authzid
