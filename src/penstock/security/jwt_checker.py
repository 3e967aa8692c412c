"""Checks JSON Web Tokens (RFC 7519) against a set of keys (RFC 7517). Needs the package PyJWT.

Only signatures with a public key are accepted: `none` would accept every token, and with HS* a
client could sign with a key that is public. A token must say when it expires and was issued.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt

from penstock.limits import MAX_JWKS_BYTES, MAX_JWKS_KEYS, MAX_SCRAM_NAME_CHARACTERS
from penstock.security.sasl.oauthbearer import InvalidToken, VerifiedToken

# Algorithm -> type of its keys.
_ALGORITHMS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
# Claims are checked here, with the clock of this node.
_SIGNATURE_ONLY: Any = {
    f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}
# Keys that are tried for a token that names none.
_MAX_TRIED = 10


class InvalidKeys(ValueError):
    """A key set that cannot be used."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    key_id: str | None
    key_type: str
    algorithm: str | None
    key: Any = field(repr=False)


def parse_jwks(data: bytes) -> tuple[VerificationKey, ...]:
    """Return the public keys of a key set. Others are skipped. Raises InvalidKeys."""
    if len(data) > MAX_JWKS_BYTES:
        raise InvalidKeys(f"the key set has more than {MAX_JWKS_BYTES:,} bytes")
    try:
        entries = json.loads(data)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidKeys("it is not a JSON Web Key Set") from None
    if not isinstance(entries, list) or len(entries) > MAX_JWKS_KEYS:
        raise InvalidKeys(f"it has no list of up to {MAX_JWKS_KEYS:,} keys")
    keys = tuple(key for entry in entries if (key := _parse_key(entry)) is not None)
    if not keys:
        raise InvalidKeys("it has no public key of type RSA, EC or OKP for signatures")
    return keys


def _parse_key(entry: Any) -> VerificationKey | None:
    if not isinstance(entry, dict) or entry.get("kty") not in _ALGORITHMS.values():
        return None
    if entry.get("use", "sig") != "sig":
        return None
    # A private key would verify as well, but has no place in a key set.
    public = {name: value for name, value in entry.items() if name not in ("d", "p", "q")}
    try:
        key = jwt.PyJWK(public).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithm, key_id = entry.get("alg"), entry.get("kid")
    return VerificationKey(
        key_id if isinstance(key_id, str) else None,
        entry["kty"],
        algorithm if isinstance(algorithm, str) else None,
        key,
    )


@dataclass(frozen=True, slots=True)
class ExpectedClaims:
    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    subject_claim: str = "sub"


class JwtChecker:
    """`keys` returns the keys of now. `missing` is called if a token names an unknown one."""

    def __init__(
        self,
        keys: Callable[[], tuple[VerificationKey, ...]],
        expected: ExpectedClaims,
        now_ms: Callable[[], int],
        missing: Callable[[], None] = lambda: None,
    ) -> None:
        self._keys = keys
        self._expected = expected
        self._now_ms = now_ms
        self._missing = missing

    def check(self, token: str) -> VerifiedToken:
        try:
            claims = self._verified(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise InvalidToken(f"the token is malformed ({type(error).__name__})") from None
        return self._check_claims(claims)

    def _verified(self, token: str) -> Mapping[str, Any]:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in _ALGORITHMS:
            raise InvalidToken(f"the token is signed with {str(algorithm)[:20]!r}")
        if "crit" in header:
            raise InvalidToken("the token has a critical header")
        for candidate in self._candidates(algorithm, header.get("kid")):
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token, candidate.key, algorithms=[algorithm], options=_SIGNATURE_ONLY
                )
            except (jwt.InvalidSignatureError, jwt.InvalidKeyError):
                continue  # the latter for a key of another curve
            return claims
        raise InvalidToken("no known key has signed the token")

    def _candidates(self, algorithm: str, key_id: object) -> list[VerificationKey]:
        keys = self._keys()
        if key_id is not None:
            named = [key for key in keys if key.key_id == key_id]
            if not named:
                self._missing()
                raise InvalidToken("the token names an unknown key")
            keys = tuple(named)
        return [
            key
            for key in keys
            if key.key_type == _ALGORITHMS[algorithm] and key.algorithm in (None, algorithm)
        ][:_MAX_TRIED]

    def _check_claims(self, claims: Mapping[str, Any]) -> VerifiedToken:
        expected, now_s = self._expected, self._now_ms() / 1000
        skew_s = expected.clock_skew_s
        expires_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
        if expires_s + skew_s <= now_s:
            raise InvalidToken("the token has expired")
        if issued_s - skew_s > now_s:
            raise InvalidToken("the token was issued in the future. Do the clocks differ?")
        if "nbf" in claims and _time(claims, "nbf") - skew_s > now_s:
            raise InvalidToken("the token is not valid yet. Do the clocks differ?")
        if expected.issuer is not None and claims.get("iss") != expected.issuer:
            raise InvalidToken("the token has another issuer")
        audience = claims.get("aud")
        given = audience if isinstance(audience, list) else [audience]
        if expected.audiences and not any(one in expected.audiences for one in given):
            raise InvalidToken("the token is for another audience")
        principal = claims.get(expected.subject_claim)
        if not isinstance(principal, str) or not principal.strip():
            raise InvalidToken(f"the token has no claim {expected.subject_claim}")
        if len(principal) > MAX_SCRAM_NAME_CHARACTERS:
            raise InvalidToken("the name of the principal is too long")
        return VerifiedToken(principal, int(expires_s * 1000))


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"the token has no time {name}")
    if not 0 <= value < 2**40:  # nor NaN
        raise InvalidToken(f"the time {name} of the token is out of range")
    return float(value)
