"""PLAIN (RFC 4616): the client sends its user name and password in one message. PURE.

- The authorization id must be empty or equal the user name: a user must not act as another one
  (CVE-2017-12610).
- Passwords are compared in constant time, also that of an unknown user (CVE-2021-38153).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from penstock.limits import MAX_PLAIN_MESSAGE_BYTES
from penstock.security.sasl.mechanism import PLAIN, SaslFailed, decode_utf8, failed_openly

_WRONG = "Authentication failed: Invalid username or password"


class PlainServer:
    """`users` has the passwords by user name."""

    expires_ms: int | None = None
    is_token = False

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self._user: str | None = None
        self._used = False

    @property
    def is_complete(self) -> bool:
        return self._user is not None

    @property
    def authorization_id(self) -> str:
        if self._user is None:
            raise SaslFailed("the authentication is not complete")
        return self._user

    def evaluate(self, response: bytes) -> bytes:
        if self._used:
            raise failed_openly("Invalid SASL/PLAIN response: one message is expected")
        self._used = True
        if len(response) > MAX_PLAIN_MESSAGE_BYTES:
            raise failed_openly(f"Invalid SASL/PLAIN response of {len(response)} bytes")
        tokens = decode_utf8(response, PLAIN).split("\0")
        if len(tokens) != 3:
            raise failed_openly(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}"
            )
        authorization_id, user, password = tokens
        if not user:
            raise failed_openly("Authentication failed: username not specified")
        if not password:
            raise failed_openly("Authentication failed: password not specified")
        expected = self._users.get(user)
        is_equal = _is_equal(password, expected or "")
        if expected is None or not is_equal:
            raise SaslFailed(f"wrong password or unknown user {user!r}", _WRONG)
        if authorization_id not in ("", user):
            raise failed_openly(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self._user = user
        return b""


class PlainClient:
    mechanism = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._message = b"\0".join((b"", user.encode(), password.encode()))
        self.is_complete = False

    def first(self) -> bytes:
        return self._message

    def evaluate(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslFailed("the server sent a challenge, which PLAIN does not have")
        self.is_complete = True
        return None


def _is_equal(given: str, expected: str) -> bool:
    """Compare digests: `compare_digest` of the texts would show whether their lengths agree."""
    return hmac.compare_digest(
        hashlib.sha256(given.encode()).digest(), hashlib.sha256(expected.encode()).digest()
    )
