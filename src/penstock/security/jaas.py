"""Parses `sasl.jaas.config`: one login module, its control flag and its options. PURE.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";

The name of a login module is compared with those of Kafka's own modules, and never loaded. So no
setting can make Penstock run code or look up a name (JNDI, CVE-2023-25194). Kerberos is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from penstock.config.sasl_settings import SASL_JAAS_CONFIG, jaas_text, mechanism_setting
from penstock.config.setting import Values
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_JAAS_CHARACTERS
from penstock.security.sasl.mechanism import OAUTHBEARER, PLAIN
from penstock.security.sasl.scram_credential import SCRAM_MECHANISMS

_PACKAGE = "org.apache.kafka.common.security"
_USER_PREFIX = "user_"
_CONTROL_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_KERBEROS = "Krb5LoginModule"

_TOKEN = re.compile(
    r"""
    (?P<skipped>\s+ | //[^\n]* | /\*.*?\*/)
  | (?P<word>[^\W] [\w.$\-]*)
  | "(?P<double>(?:[^"\\\n] | \\[^\n])*)"
  | '(?P<single>(?:[^'\\\n] | \\[^\n])*)'
  | (?P<sign>[=;])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """The reason why a JAAS configuration is refused. It has no option's value, which may be a
    password."""


class LoginModule(StrEnum):
    """The login modules that are known, by Kafka's class name."""

    PLAIN = f"{_PACKAGE}.plain.PlainLoginModule"
    SCRAM = f"{_PACKAGE}.scram.ScramLoginModule"
    OAUTHBEARER = f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule"

    @property
    def mechanisms(self) -> tuple[str, ...]:
        if self is LoginModule.SCRAM:
            return tuple(SCRAM_MECHANISMS)
        return (PLAIN,) if self is LoginModule.PLAIN else (OAUTHBEARER,)


@dataclass(frozen=True, slots=True)
class JaasConfig:
    module: LoginModule
    options: Mapping[str, str] = field(repr=False)

    @property
    def user(self) -> str | None:
        """The user that this side authenticates as."""
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        return self.options.get("password")

    @property
    def is_token(self) -> bool:
        """True if user and password are a delegation token's id and HMAC (KIP-48)."""
        return self.options.get("tokenauth", "").lower() == "true"

    @property
    def users(self) -> Mapping[str, str]:
        """The passwords of the users that a server accepts with PLAIN."""
        return MappingProxyType(
            {
                name.removeprefix(_USER_PREFIX): value
                for name, value in self.options.items()
                if name.startswith(_USER_PREFIX)
            }
        )


def parse_jaas(text: str, mechanism: str) -> JaasConfig:
    """Parse the value of a sasl.jaas.config for a mechanism. Raises JaasError."""
    if len(text) > MAX_JAAS_CHARACTERS:
        raise JaasError(f"the JAAS config has {len(text)} characters, the limit is 1 MB")
    tokens = list(_tokens(text))
    if not tokens:
        raise JaasError("Login module not specified in JAAS config")
    config, rest = _entry(tokens)
    if rest:
        raise JaasError("JAAS config property contains several login modules, should be 1 module")
    if mechanism not in config.module.mechanisms:
        raise JaasError(
            f"{config.module} is the login module of {' and '.join(config.module.mechanisms)}, "
            f"not of {mechanism}"
        )
    return config


def parsed_login(values: Values, listener_name: str, mechanism: str) -> JaasConfig | None:
    """Return the login of a node's listener and mechanism; None if there is none. Raises KafkaError
    INVALID_CONFIG."""
    text = jaas_text(values, listener_name, mechanism)
    if text is None:
        return None
    try:
        return parse_jaas(text, mechanism)
    except JaasError as error:
        name = mechanism_setting(listener_name, mechanism, SASL_JAAS_CONFIG).name
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: {error}") from None


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text: `word`, `quoted`, `=` or `;`."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError(
                f"JAAS config has an unexpected character or an open quote at position {position}"
            )
        position = match.end()
        if (word := match["word"]) is not None:
            yield "word", word
        elif (quoted := match["double"]) is not None or (quoted := match["single"]) is not None:
            yield "quoted", _ESCAPE.sub(_unescape, quoted)
        elif (sign := match["sign"]) is not None:
            yield sign, sign


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPED.get(escaped, escaped)


def _entry(tokens: list[tuple[str, str]]) -> tuple[JaasConfig, list[tuple[str, str]]]:
    module = _module(tokens[0])
    if len(tokens) < 2 or tokens[1][0] in ("=", ";"):
        raise JaasError("Login module control flag not specified in JAAS config")
    if tokens[1][1].upper() not in _CONTROL_FLAGS:
        raise JaasError("Invalid login module control flag in JAAS config. Use required")
    options: dict[str, str] = {}
    position = 2
    while position < len(tokens) and tokens[position][0] != ";":
        kind, key = tokens[position]
        following = [kind for kind, _text in tokens[position + 1 : position + 3]]
        if kind == "=" or len(following) < 2 or following[0] != "=" or following[1] in ("=", ";"):
            # A password with a space that is not quoted would show as the name of a key.
            raise JaasError(
                f"Value not specified for key number {len(options) + 1} in JAAS config. Put values "
                "with spaces in double quotes"
            )
        options[key] = tokens[position + 2][1]
        position += 3
    if position >= len(tokens):
        raise JaasError("JAAS config entry not terminated by semi-colon")
    return JaasConfig(module, MappingProxyType(options)), tokens[position + 1 :]


def _module(token: tuple[str, str]) -> LoginModule:
    kind, name = token
    if kind in ("=", ";"):
        raise JaasError("Login module not specified in JAAS config")
    if name.endswith(_KERBEROS):
        raise JaasError(
            f"{name} is for GSSAPI (Kerberos), which Penstock does not support. Use SCRAM-SHA-512, "
            "PLAIN over TLS, OAUTHBEARER or TLS client certificates"
        )
    try:
        return LoginModule(name)
    except ValueError:
        raise JaasError(
            "the login module of the JAAS config is not allowed. Use one of "
            f"{', '.join(LoginModule)}"
        ) from None
