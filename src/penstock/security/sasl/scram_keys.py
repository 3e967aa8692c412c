"""Derives the keys of SCRAM credentials from passwords (RFC 5802, section 3). PURE."""

from __future__ import annotations

import hashlib
import heapq
import hmac
import math
from collections.abc import Mapping

from penstock.security.sasl.scram_credential import (
    DEFAULT_SHAPE,
    ScramCredential,
    ScramMechanism,
    ScramShape,
)

_TEXT = b"0123456789abcdefghijklmnopqrstuvwxyz"
_DIGEST_BITS = 256
# The most frequent shapes that a made-up credential may have: each costs a digest.
_SHAPES = 8


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return Hi(password, salt, iterations). Takes 2 to 20 ms without the interpreter lock. As in
    Kafka, passwords are not normalized by SASLprep."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", mechanism.digest)


def stored_key(mechanism: ScramMechanism, key: bytes) -> bytes:
    """Return the hash of a client key."""
    return hashlib.new(mechanism.digest, key).digest()


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password."""
    return ScramCredential(
        salt,
        stored_key(mechanism, client_key(mechanism, salted)),
        hmac.digest(salted, b"Server Key", mechanism.digest),
        iterations,
    )


def made_up_credential(
    mechanism: ScramMechanism, user: str, secret: bytes, shapes: Mapping[ScramShape, int]
) -> ScramCredential:
    """Return the credential of a user that does not exist. The same name gets the same one as long
    as the secret is the same, as a real user does. No proof matches its stored key. `shapes` counts
    those of real users: one of them is chosen, a frequent one more often."""
    seed = f"{mechanism.sasl_name} {user}".encode()
    shape = _chosen(shapes, seed, secret)
    salt = hashlib.shake_256(hmac.digest(secret, b"salt " + seed, "sha256")).digest(
        shape.salt_bytes
    )
    if shape.is_text:
        salt = bytes(_TEXT[byte % len(_TEXT)] for byte in salt)
    return ScramCredential(
        salt,
        hmac.digest(secret, b"stored key " + seed, mechanism.digest),
        hmac.digest(secret, b"server key " + seed, mechanism.digest),
        shape.iterations,
    )


def _chosen(shapes: Mapping[ScramShape, int], seed: bytes, secret: bytes) -> ScramShape:
    """Return a shape with a probability in proportion to its count (weighted rendezvous hashing): a
    user that is added or removed changes the choice for few names."""
    if len(shapes) < 2:
        return next(iter(shapes), DEFAULT_SHAPE)

    def score(shape: ScramShape) -> float:
        text = f"shape {shape.iterations} {shape.salt_bytes} {shape.is_text} ".encode()
        drawn = int.from_bytes(hmac.digest(secret, text + seed, "sha256")) + 1
        return (math.log(drawn) - _DIGEST_BITS * math.log(2)) / shapes[shape]

    frequent = heapq.nlargest(_SHAPES, shapes, key=lambda shape: (shapes[shape], shape))
    return max(frequent, key=score)
