"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), server and client side. PURE.

client first:  n,,n=user,r=CNONCE          client final:  c=biws,r=CNONCESNONCE,p=proof
server first:  r=CNONCESNONCE,s=salt,i=n   server final:  v=signature

- Each side checks the whole nonce (CVE-2024-56128): a recorded message is good for no other
  exchange.
- A user that does not exist gets a made-up salt and fails at the proof, as with a wrong password.
- With the extension `tokenauth=true` the user is the id of a delegation token (KIP-48).
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from penstock.limits import MAX_SCRAM_CLIENT_ITERATIONS
from penstock.security.sasl.mechanism import SaslFailed, failed_openly
from penstock.security.sasl.scram_credential import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    ScramShape,
)
from penstock.security.sasl.scram_keys import (
    client_key,
    made_up_credential,
    salted_password,
    stored_key,
)
from penstock.security.sasl.scram_messages import (
    ClientFirst,
    escaped,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
    server_first,
)

# (user name) -> the credential of this mechanism; None if the user has none.
FindCredential = Callable[[str], ScramCredential | None]


class TokenLogin(NamedTuple):
    """The user that the bearer of a delegation token is, until `expires_ms`."""

    owner: str
    expires_ms: int
    credential: ScramCredential


# (token id) -> None if the token is unknown or expired.
FindToken = Callable[[str], TokenLogin | None]


_NO_SHAPES: Mapping[ScramShape, int] = MappingProxyType({})


def _no_token(_token_id: str) -> TokenLogin | None:
    return None


class ScramServer:
    """`nonce` must be fresh and not to be guessed. `secret` makes up the salts of unknown users.
    `shapes` counts the shapes of the credentials of known ones."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: FindCredential,
        nonce: str,
        secret: bytes,
        find_token: FindToken = _no_token,
        shapes: Mapping[ScramShape, int] = _NO_SHAPES,
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._find_token = find_token
        self._shapes = shapes
        self._nonce = nonce
        self._secret = secret
        self._first: ClientFirst | None = None
        self._server_first = ""
        self._credential: ScramCredential | None = None
        self._may_match = True
        self._over = False
        self._token: TokenLogin | None = None
        self.is_complete = False

    @property
    def authorization_id(self) -> str:
        if self._first is None or not self.is_complete:
            raise SaslFailed("the authentication is not complete")
        return self._first.user if self._token is None else self._token.owner

    @property
    def expires_ms(self) -> int | None:
        return None if self._token is None else self._token.expires_ms

    @property
    def is_token(self) -> bool:
        return self._token is not None

    def evaluate(self, response: bytes) -> bytes:
        if self._over:
            raise SaslFailed("a SCRAM message came after the end of the exchange")
        self._over = True
        if self._first is None:
            challenge = self._challenge(parse_client_first(response))
            self._over = False
            return challenge
        return self._sign(self._first, response)

    def _challenge(self, first: ClientFirst) -> bytes:
        if first.authorization_id not in ("", first.user):
            raise failed_openly(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        if first.is_token:
            self._token = self._find_token(first.user)
            found = None if self._token is None else self._token.credential
        else:
            found = self._find(first.user)
        if found is not None and found.iterations < MIN_ITERATIONS:
            raise SaslFailed(
                f"the SCRAM credential of {first.user!r} has {found.iterations} iterations, fewer "
                f"than {MIN_ITERATIONS}. Set it again"
            )
        self._may_match = found is not None
        credential = found or made_up_credential(
            self._mechanism,
            first.user,
            self._secret,
            _NO_SHAPES if first.is_token else self._shapes,
        )
        self._first, self._credential = first, credential
        self._server_first = server_first(
            first.nonce + self._nonce, credential.salt, credential.iterations
        )
        return self._server_first.encode()

    def _sign(self, first: ClientFirst, response: bytes) -> bytes:
        final, credential = parse_client_final(response), self._credential
        self._credential = None
        if credential is None or not hmac.compare_digest(final.nonce, first.nonce + self._nonce):
            raise SaslFailed("the SCRAM client final message has another nonce")
        if final.channel_binding != first.header.encode():
            raise SaslFailed("the SCRAM client final message has another channel binding")
        signed = auth_message(first.bare, self._server_first, final.unproved)
        signature = hmac.digest(credential.stored_key, signed, self._mechanism.digest)
        if len(final.proof) != len(signature):
            raise SaslFailed("the SCRAM proof has a wrong length")
        computed = stored_key(self._mechanism, _xor(signature, final.proof))
        if not hmac.compare_digest(computed, credential.stored_key) or not self._may_match:
            known = "wrong password of" if self._may_match else "unknown"
            kind = "delegation token" if first.is_token else "user"
            raise SaslFailed(f"{known} {kind} {first.user!r}")
        self.is_complete = True
        return b"v=" + _base64(hmac.digest(credential.server_key, signed, self._mechanism.digest))


class ScramClient:
    """`nonce` must be fresh and not to be guessed."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        nonce: str,
        *,
        is_token: bool = False,
    ) -> None:
        self.mechanism = mechanism.sasl_name
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={escaped(user)},r={nonce}{',tokenauth=true' if is_token else ''}"
        self._expected: bytes | None = None
        self._over = False
        self.is_complete = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        if self._over:
            raise SaslFailed("the server sent a SCRAM message after the end of the exchange")
        if self._expected is None:
            return self._prove(challenge)
        self._over = True
        if not hmac.compare_digest(parse_server_final(challenge), self._expected):
            raise SaslFailed(
                "the server does not prove that it knows the credential of this user: it may be "
                "another server"
            )
        self.is_complete = True
        return None

    def _prove(self, challenge: bytes) -> bytes:
        self._over = True
        server = parse_server_first(challenge)
        if not server.nonce.startswith(self._nonce) or server.nonce == self._nonce:
            raise SaslFailed("the server's SCRAM nonce does not extend that of this client")
        if not MIN_ITERATIONS <= server.iterations <= MAX_SCRAM_CLIENT_ITERATIONS:
            raise SaslFailed(
                f"the server asks for {server.iterations} SCRAM iterations, not "
                f"{MIN_ITERATIONS} to {MAX_SCRAM_CLIENT_ITERATIONS}"
            )
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, server.salt, server.iterations)
        unproved = f"c=biws,r={server.nonce}"
        signed = auth_message(self._bare, server.text, unproved)
        key = client_key(mechanism, salted)
        signature = hmac.digest(stored_key(mechanism, key), signed, mechanism.digest)
        server_key = hmac.digest(salted, b"Server Key", mechanism.digest)
        self._expected = hmac.digest(server_key, signed, mechanism.digest)
        self._over = False
        return f"{unproved},p=".encode() + _base64(_xor(key, signature))


def auth_message(client_first_bare: str, server_first: str, client_final_unproved: str) -> bytes:
    return f"{client_first_bare},{server_first},{client_final_unproved}".encode()


def _xor(left: bytes, right: bytes) -> bytes:
    size = len(left)
    return (int.from_bytes(left) ^ int.from_bytes(right)).to_bytes(size)


def _base64(data: bytes) -> bytes:
    return base64.b64encode(data)
