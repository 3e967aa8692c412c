"""Settings of SASL: mechanisms, logins, and limits on authentication.

Kafka's rule for values of a listener: `listener.name.<listener>.<setting>` comes before
`<setting>`, and for logins and sessions `listener.name.<listener>.<mechanism>.<setting>` before
both. Names of listeners and mechanisms are in lower case there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from penstock.config import oauthbearer_settings as oauth
from penstock.config.listeners import (
    controller_listener_names,
    inter_broker_listener_name,
    listener_setting,
    listeners,
    security_protocols,
)
from penstock.config.setting import Dynamic, Importance, Setting, SettingType, Values, require
from penstock.config.validators import at_least, list_of

T = TypeVar("T")

PLAIN, GSSAPI = "PLAIN", "GSSAPI"
OAUTHBEARER = "OAUTHBEARER"
# What clients can log in to this node with, and this node and its clients to others.
SUPPORTED_MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)

SASL_ENABLED_MECHANISMS = Setting[tuple[str, ...]](
    "sasl.enabled.mechanisms",
    SettingType.LIST,
    (GSSAPI,),
    Importance.MEDIUM,
    (
        "The SASL mechanisms that clients may authenticate with: PLAIN, SCRAM-SHA-256, "
        "SCRAM-SHA-512, OAUTHBEARER. Kafka's default, GSSAPI, is not supported, so that a node "
        "with a SASL listener must set this."
    ),
    list_of(may_be_empty=False),
    Dynamic.PER_BROKER,
)
SASL_MECHANISM_INTER_BROKER_PROTOCOL = Setting(
    "sasl.mechanism.inter.broker.protocol",
    SettingType.STRING,
    GSSAPI,
    Importance.MEDIUM,
    "The SASL mechanism that brokers authenticate to each other with.",
    None,
    Dynamic.PER_BROKER,
)
SASL_MECHANISM_CONTROLLER_PROTOCOL = Setting(
    "sasl.mechanism.controller.protocol",
    SettingType.STRING,
    GSSAPI,
    Importance.HIGH,
    "The SASL mechanism that nodes authenticate to controllers with.",
)
SASL_JAAS_CONFIG = Setting[str | None](
    "sasl.jaas.config",
    SettingType.PASSWORD,
    None,
    Importance.MEDIUM,
    (
        "The login of a listener and mechanism, in the format of JAAS. For PLAIN it has the users "
        "that a listener accepts as user_NAME=password. username and password are those that this "
        "node authenticates with to other nodes. Set it as "
        "listener.name.<listener>.<mechanism>.sasl.jaas.config."
    ),
    None,
    Dynamic.PER_BROKER,
)
SASL_SERVER_MAX_RECEIVE_SIZE = Setting(
    "sasl.server.max.receive.size",
    SettingType.INT,
    524_288,
    Importance.MEDIUM,
    "The largest request, in bytes, before a client is authenticated.",
)
CONNECTIONS_MAX_REAUTH_MS = Setting(
    "connections.max.reauth.ms",
    SettingType.LONG,
    0,
    Importance.MEDIUM,
    (
        "How long a client may use a connection before it authenticates again (KIP-368). A "
        "connection that does not is closed at its next request. 0: sessions do not end."
    ),
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = Setting(
    "connection.failed.authentication.delay.ms",
    SettingType.INT,
    100,
    Importance.LOW,
    (
        "How long the answer to a failed authentication is delayed, so that clients do not "
        "reconnect at once."
    ),
    at_least(0),
)

# Settings that a listener, and a listener's mechanism, may have a value of its own for.
PER_LISTENER = (
    SASL_ENABLED_MECHANISMS,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    CONNECTIONS_MAX_REAUTH_MS,
)
PER_MECHANISM = (SASL_JAAS_CONFIG, CONNECTIONS_MAX_REAUTH_MS)


def mechanism_setting(listener_name: str, mechanism: str, setting: Setting[T]) -> Setting[T]:
    """Return the setting for one mechanism of a listener."""
    prefixed = replace(setting, name=f"{mechanism.lower()}.{setting.name}")
    return listener_setting(listener_name, prefixed)


def find_mechanism_setting(listener_name: str, name: str) -> Setting[Any] | None:
    """Return the setting that <mechanism>.<setting> of a listener is; None if it is none."""
    for mechanism in SUPPORTED_MECHANISMS:
        more = oauth.OF_MECHANISM if mechanism == OAUTHBEARER else ()
        settings: tuple[Setting[Any], ...] = (*PER_MECHANISM, *more)
        for setting in settings:
            if name == f"{mechanism.lower()}.{setting.name}":
                return mechanism_setting(listener_name, mechanism, setting)
    return None


def of_listener(values: Values, listener_name: str, setting: Setting[T]) -> T:
    own = listener_setting(listener_name, setting)
    return values[own] if values.is_set(own) else values[setting]


def enabled_mechanisms(values: Values, listener_name: str) -> tuple[str, ...]:
    return of_listener(values, listener_name, SASL_ENABLED_MECHANISMS)


def of_mechanism(values: Values, listener_name: str, mechanism: str, setting: Setting[T]) -> T:
    own = mechanism_setting(listener_name, mechanism, setting)
    return values[own] if values.is_set(own) else of_listener(values, listener_name, setting)


def max_reauth_ms(values: Values, listener_name: str, mechanism: str) -> int:
    return of_mechanism(values, listener_name, mechanism, CONNECTIONS_MAX_REAUTH_MS)


def jaas_text(values: Values, listener_name: str, mechanism: str) -> str | None:
    return values[mechanism_setting(listener_name, mechanism, SASL_JAAS_CONFIG)]


def check_sasl(values: Values) -> None:
    """Kafka's rules between SASL settings. Logins are parsed when the node starts."""
    require(
        not values.is_set(SASL_JAAS_CONFIG),
        SASL_JAAS_CONFIG,
        "sasl.jaas.config of a node must be prefixed with the listener and the mechanism: "
        "listener.name.<listener>.<mechanism>.sasl.jaas.config",
    )
    handler = oauth.SERVER_CALLBACK_HANDLER_CLASS
    require(
        values[handler] in (None, "", oauth.VALIDATOR),
        handler,
        f"{handler.name} must be {oauth.VALIDATOR}, or not set: Penstock loads no classes",
    )
    for listener in listeners(values):
        if listener.security_protocol.is_sasl:
            _check_listener(values, listener.name)
    names = {listener.name for listener in listeners(values)}
    protocols = security_protocols(values)
    inter_broker = inter_broker_listener_name(values)
    if inter_broker in names and protocols[inter_broker].is_sasl:
        setting = SASL_MECHANISM_INTER_BROKER_PROTOCOL
        require(
            values[setting] in enabled_mechanisms(values, inter_broker),
            setting,
            f"{setting.name} must be included in sasl.enabled.mechanisms when SASL is used for "
            f"inter-broker communication, but {values[setting]} is not",
        )
        _require_supported(setting, values[setting])
        _require_login(values, inter_broker, values[setting])
    _check_controllers(values)


def _check_controllers(values: Values) -> None:
    protocols = security_protocols(values)
    controllers = controller_listener_names(values)
    if not controllers or controllers[0] not in protocols:
        return
    name, setting = controllers[0], SASL_MECHANISM_CONTROLLER_PROTOCOL
    if protocols[name].is_sasl:
        _require_supported(setting, values[setting])
        _require_login(values, name, values[setting])


def _check_listener(values: Values, name: str) -> None:
    own = listener_setting(name, SASL_ENABLED_MECHANISMS)
    size = SASL_SERVER_MAX_RECEIVE_SIZE
    require(of_listener(values, name, size) > 0, size, f"{size.name} must be positive")
    for mechanism in enabled_mechanisms(values, name):
        _require_supported(own if values.is_set(own) else SASL_ENABLED_MECHANISMS, mechanism)
        if mechanism == PLAIN:
            _require_login(values, name, mechanism)
        elif mechanism == OAUTHBEARER:
            _check_oauthbearer(values, name)


def _check_oauthbearer(values: Values, name: str) -> None:
    """Kafka accepts tokens without a signature unless a validator is set. Penstock never does."""
    url = oauth.JWKS_ENDPOINT_URL
    require(
        bool(of_mechanism(values, name, OAUTHBEARER, url)),
        url,
        f"{url.name} is not set, but listener {name} uses OAUTHBEARER",
    )
    handler = oauth.SERVER_CALLBACK_HANDLER_CLASS
    require(
        of_mechanism(values, name, OAUTHBEARER, handler) in (None, "", oauth.VALIDATOR),
        handler,
        f"{handler.name} must be {oauth.VALIDATOR}, or not set: Penstock loads no classes",
    )


def _require_supported(setting: Setting[T], mechanism: str) -> None:
    kerberos = (
        " Kerberos (GSSAPI) is Kafka's default, which Penstock does not support."
        if mechanism == GSSAPI
        else ""
    )
    require(
        mechanism in SUPPORTED_MECHANISMS,
        setting,
        f"{setting.name}: {mechanism} is not a supported mechanism.{kerberos} Set it to "
        f"{', '.join(SUPPORTED_MECHANISMS)}",
    )


def _require_login(values: Values, listener_name: str, mechanism: str) -> None:
    setting = mechanism_setting(listener_name, mechanism, SASL_JAAS_CONFIG)
    require(
        bool(values[setting]),
        setting,
        f"{setting.name} is not set, but listener {listener_name} uses {mechanism}",
    )
