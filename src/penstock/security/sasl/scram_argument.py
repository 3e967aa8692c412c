"""Parses the argument of `format --add-scram`, as kafka-storage.sh does. PURE.

    SCRAM-SHA-256=[name=alice,password=alice-secret,iterations=8192]
    SCRAM-SHA-512=[name=alice,salt="MWx2...",saltedpassword="mT0y..."]

No error repeats a part of the argument but a name: the rest may be a password.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable

from penstock.security.sasl.scram_credential import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
)
from penstock.security.sasl.scram_keys import credential_of, salted_password

_ARGUMENT = re.compile(r"(?P<mechanism>[^=]*)=\[(?P<settings>.*)\]", re.DOTALL)
_KNOWN = ("name", "password", "salt", "saltedpassword", "iterations")


class ScramArgumentError(ValueError):
    """The reason why an argument is refused."""


def parse_add_scram(
    text: str, new_salt: Callable[[], bytes]
) -> tuple[ScramMechanism, str, ScramCredential]:
    """Return mechanism, user name and credential. Takes as long as `salted_password`. Raises
    ScramArgumentError."""
    match = _ARGUMENT.fullmatch(text.strip())
    if match is None:
        raise ScramArgumentError(
            "an --add-scram argument is not in the form SCRAM-SHA-256=[name=alice,password=...]"
        )
    mechanism = SCRAM_MECHANISMS.get(match["mechanism"])
    if mechanism is None:
        raise ScramArgumentError(
            "The add-scram mechanism is not supported. Use "
            f"{' or '.join(SCRAM_MECHANISMS)}=[name=...,password=...]"
        )
    settings = _settings(match["settings"])
    name = settings.get("name")
    if not name:
        raise ScramArgumentError("You must supply 'name' to add-scram")
    iterations = _iterations(settings.get("iterations"))
    salt = _decoded(settings["salt"], "salt") if "salt" in settings else new_salt()
    salted = _salted(mechanism, settings, salt, iterations)
    return mechanism, name, credential_of(mechanism, salted, salt, iterations)


def _settings(text: str) -> dict[str, str]:
    settings = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or name not in _KNOWN:
            raise ScramArgumentError(
                f"Unknown SCRAM configurations: add-scram knows {', '.join(_KNOWN)}"
            )
        quoted = len(value) >= 2 and value[0] == value[-1] == '"'
        settings[name] = value[1:-1] if quoted else value
    return settings


def _iterations(text: str | None) -> int:
    if text is None:
        return DEFAULT_ITERATIONS
    iterations = int(text) if re.fullmatch("[0-9]{1,9}", text, re.ASCII) else 0
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ScramArgumentError(
            f"The 'iterations' value must be >= {MIN_ITERATIONS} and <= {MAX_ITERATIONS} for "
            "add-scram"
        )
    return iterations


def _salted(
    mechanism: ScramMechanism, settings: dict[str, str], salt: bytes, iterations: int
) -> bytes:
    password, salted = settings.get("password"), settings.get("saltedpassword")
    if password:
        return salted_password(mechanism, password, salt, iterations)
    if not salted:
        raise ScramArgumentError(
            "You must supply one of 'password' or 'saltedpassword' to add-scram"
        )
    if "salt" not in settings:
        raise ScramArgumentError("You must supply 'salt' with 'saltedpassword' to add-scram")
    decoded = _decoded(salted, "saltedpassword")
    if len(decoded) != mechanism.key_bytes:
        raise ScramArgumentError(
            f"The 'saltedpassword' of {mechanism.sasl_name} must have {mechanism.key_bytes} bytes"
        )
    return decoded


def _decoded(text: str, name: str) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except binascii.Error:
        decoded = b""
    if not decoded:
        raise ScramArgumentError(f"Failed to decode the given {name}: it is not base64")
    return decoded
