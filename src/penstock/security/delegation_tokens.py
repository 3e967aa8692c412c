"""Delegation tokens (KIP-48, KIP-373): who owns them, how long they are valid, and their secrets.
PURE.

A token's secret is the HMAC of its id with `delegation.token.secret.key`. It is in no record: each
node derives it. A client logs in by SCRAM, with the id as user name and the HMAC in base64 as
password.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.limits import TOKENS_INDEXED_A_TURN
from penstock.security.principals import KafkaPrincipal
from penstock.security.sasl.scram_credential import (
    DEFAULT_SHAPE,
    ScramCredential,
    ScramMechanism,
)
from penstock.security.sasl.scram_keys import credential_of, salted_password


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Times are in milliseconds since 1970. `requester` created the token for `owner`."""

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return min(self.max_ms, self.expires_ms) < now_ms

    def belongs_to(self, principal: KafkaPrincipal) -> bool:
        """Return True for the owner and the renewers: they may renew and expire it."""
        return principal == self.owner or principal in self.renewers

    def is_shown_to(self, principal: KafkaPrincipal) -> bool:
        """Return True for principals that may describe it without a right. The requester is one: it
        got the secret when it created the token (KIP-373)."""
        return self.belongs_to(principal) or principal == self.requester


def token_hmac(secret_key: bytes, token_id: str) -> bytes:
    """Return the secret of a token: HMAC-SHA-512, as in Kafka."""
    return hmac.digest(secret_key, token_id.encode(), "sha512")


def token_password(secret: bytes) -> str:
    """Return the password of a token in SCRAM."""
    return base64.b64encode(secret).decode()


def token_credential(
    mechanism: ScramMechanism, secret_key: bytes, token_id: str
) -> ScramCredential:
    """Return the SCRAM credential of a token. Takes some milliseconds. The salt is the same on all
    nodes and after a restart, as that of a user."""
    seed = f"token salt {mechanism.sasl_name} {token_id}".encode()
    salt = hmac.digest(secret_key, seed, "sha256")[: DEFAULT_SHAPE.salt_bytes]
    password = token_password(token_hmac(secret_key, token_id))
    salted = salted_password(mechanism, password, salt, DEFAULT_SHAPE.iterations)
    return credential_of(mechanism, salted, salt, DEFAULT_SHAPE.iterations)


@dataclass(slots=True)
class TokensByHmac:
    """Finds tokens by their HMACs: requests to renew and expire a token have no id."""

    secret_key: bytes = field(repr=False)
    _tokens: Mapping[str, DelegationToken] | None = field(default=None, repr=False)
    _ids: dict[bytes, str] = field(default_factory=dict, repr=False)
    _hmacs: dict[str, bytes] = field(default_factory=dict, repr=False)

    def find(self, tokens: Mapping[str, DelegationToken], secret: bytes) -> DelegationToken | None:
        """Return the token of an image. Most of them should be indexed by `index`."""
        for _step in self.index(tokens):
            pass
        token_id = self._ids.get(secret)
        return None if token_id is None else tokens.get(token_id)

    def index(self, tokens: Mapping[str, DelegationToken]) -> Iterator[None]:
        """Derive the HMACs of new tokens, and forget removed ones. Yields between bounded parts."""
        if tokens is self._tokens:
            return
        derived = 0
        for token_id in tokens:
            if token_id not in self._hmacs:
                secret = self._hmacs[token_id] = token_hmac(self.secret_key, token_id)
                self._ids[secret] = token_id
                derived += 1
                if derived % TOKENS_INDEXED_A_TURN == 0:
                    yield
        if len(self._hmacs) > len(tokens):
            for token_id in [each for each in self._hmacs if each not in tokens]:
                del self._ids[self._hmacs.pop(token_id)]
        self._tokens = tokens
