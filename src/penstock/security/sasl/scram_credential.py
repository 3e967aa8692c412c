"""Credentials of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677). PURE.

A server stores no password: `stored_key` checks a client's proof, and `server_key` signs the
server's answer. Both are secrets, since a server that has them can be posed as.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from penstock.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512

# Kafka's bounds. Clients may be slow machines, so the upper one is low.
MIN_ITERATIONS, MAX_ITERATIONS = 4_096, 16_384
DEFAULT_ITERATIONS = MIN_ITERATIONS


class ScramMechanism(IntEnum):
    """The numbers are those of the protocol and of UserScramCredentialRecord."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return SCRAM_SHA_256 if self is ScramMechanism.SHA_256 else SCRAM_SHA_512

    @property
    def digest(self) -> str:
        """The name of the hash function in hashlib."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        return 32 if self is ScramMechanism.SHA_256 else 64


SCRAM_MECHANISMS = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Neither keys nor salt are in its text, which may end up in a log."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int = field(repr=False)


# Of the salts that this software makes: 160 bits.
SALT_BYTES = 20
_BASE_36 = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyz")


class ScramShape(NamedTuple):
    """What a client can tell of a credential without its password, whatever the salt is. The salts
    of Kafka's admin client are text: digits and lower case letters."""

    iterations: int
    salt_bytes: int
    is_text: bool


DEFAULT_SHAPE = ScramShape(DEFAULT_ITERATIONS, SALT_BYTES, is_text=False)


def shape_of(credential: ScramCredential) -> ScramShape:
    salt = credential.salt
    return ScramShape(credential.iterations, len(salt), is_text=_BASE_36.issuperset(salt))


# Number of the mechanism, and user name. The number may be one that a later release writes.
ScramCredentialKey = tuple[int, str]
