"""The security of a client's connections, from settings with Kafka's names: `security.protocol`,
`sasl.mechanism`, `sasl.jaas.config`, `ssl.*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.client.sasl import InvalidLogin, SaslLogin, with_sasl
from penstock.client.tokens import ALLOWED_URLS_VARIABLE, TokenSource, environment_urls
from penstock.config import oauthbearer_settings as oauth
from penstock.config.listeners import SecurityProtocol
from penstock.config.sasl_settings import GSSAPI, SUPPORTED_MECHANISMS
from penstock.config.ssl_settings import SSL_SETTINGS, InvalidSslError, client_ssl_config
from penstock.security.jaas import JaasConfig, JaasError, parse_jaas
from penstock.world import World

if TYPE_CHECKING:
    import ssl

SECURITY_PROTOCOL = "security.protocol"
SASL_MECHANISM = "sasl.mechanism"
SASL_JAAS_CONFIG = "sasl.jaas.config"
_SASL_SETTINGS = (
    SECURITY_PROTOCOL,
    SASL_MECHANISM,
    SASL_JAAS_CONFIG,
    oauth.TOKEN_ENDPOINT_URL.name,
    oauth.CLIENT_ID.name,
    oauth.CLIENT_SECRET.name,
    oauth.SCOPE.name,
)


class InvalidSecurity(ValueError):
    """Settings with which no connection can be opened. The text has no secret."""


def secured(world: World, settings: Mapping[str, str]) -> World:
    """Return the world in which a client with these settings opens its connections. Reads key and
    trust stores. Raises InvalidSecurity."""
    protocol = _protocol(settings)
    if protocol.is_tls:
        world = _encrypted(world, settings)
    if protocol.is_sasl:
        world = with_sasl(world, _login(settings))
    return world


def is_security_setting(name: str) -> bool:
    return name in SSL_SETTINGS or name in _SASL_SETTINGS


def check_security(settings: Mapping[str, str]) -> None:
    """Check settings without reading a file. Raises InvalidSecurity."""
    protocol = _protocol(settings)
    if protocol.is_tls:
        try:
            client_ssl_config(settings)
        except InvalidSslError as error:
            raise InvalidSecurity(f"{error.setting.name}: {error.reason}") from error
    if protocol.is_sasl:
        _login(settings)


def _protocol(settings: Mapping[str, str]) -> SecurityProtocol:
    text = settings.get(SECURITY_PROTOCOL, SecurityProtocol.PLAINTEXT).strip()
    try:
        return SecurityProtocol(text.upper())
    except ValueError:
        raise InvalidSecurity(
            f"Invalid value {text} for configuration {SECURITY_PROTOCOL}: it must be one of "
            f"{', '.join(SecurityProtocol)}"
        ) from None


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the context of a client of https; None if the settings have no TLS. Reads key and
    trust stores. Raises InvalidSecurity."""
    from penstock.security.tls.context import client_context

    if not _protocol(settings).is_tls:
        return None
    try:
        return client_context(client_ssl_config(settings)).context
    except InvalidSslError as error:
        raise InvalidSecurity(f"{error.setting.name}: {error.reason}") from error


def _encrypted(world: World, settings: Mapping[str, str]) -> World:
    # Imported on first use: Python's ssl takes a while to load.
    from penstock.security.tls.context import client_context
    from penstock.security.tls.network import with_tls

    try:
        made = client_context(client_ssl_config(settings))
    except InvalidSslError as error:
        raise InvalidSecurity(f"{error.setting.name}: {error.reason}") from error
    return with_tls(world, lambda: made.context)


def _login(settings: Mapping[str, str]) -> SaslLogin:
    mechanism = settings.get(SASL_MECHANISM, GSSAPI).strip()
    if mechanism not in SUPPORTED_MECHANISMS:
        kerberos = " Kerberos is Kafka's default." if mechanism == GSSAPI else ""
        raise InvalidSecurity(
            f"{SASL_MECHANISM}={mechanism} is not supported.{kerberos} Set it to one of "
            f"{', '.join(SUPPORTED_MECHANISMS)}"
        )
    text = settings.get(SASL_JAAS_CONFIG)
    if text is None:
        raise InvalidSecurity(
            f"{SASL_JAAS_CONFIG} is not set, but {SECURITY_PROTOCOL} is one with SASL. Set it to "
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="..." '
            'password="...";'
        )
    try:
        parsed = parse_jaas(text, mechanism)
        return SaslLogin.of(mechanism, parsed, lambda jaas: _tokens(settings, jaas))
    except (JaasError, InvalidLogin) as error:
        raise InvalidSecurity(f"{SASL_JAAS_CONFIG}: {error}") from None


def _tokens(settings: Mapping[str, str], jaas: JaasConfig) -> TokenSource:
    """The list of allowed URLs is in the environment, where the settings cannot change it."""
    return TokenSource.of(
        settings,
        jaas.options,
        environment_urls(),
        f"the environment's {ALLOWED_URLS_VARIABLE}",
        lambda: tls_context(settings),
    )
