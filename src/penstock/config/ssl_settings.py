"""Settings of TLS (Kafka's SslConfigs), and their values for one listener or client.

A listener's own value, `listener.name.<lower name>.ssl.keystore.location`, comes before that of the
node, `ssl.keystore.location`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.config.listeners import SecurityProtocol, listener_setting, listeners
from penstock.config.setting import (
    Dynamic,
    Importance,
    InconsistentSettingsError,
    InvalidSettingError,
    Setting,
    SettingType,
    Values,
)
from penstock.config.validators import one_of

T = TypeVar("T")

BOOLEAN, STRING, PASSWORD, LIST = (
    SettingType.BOOLEAN,
    SettingType.STRING,
    SettingType.PASSWORD,
    SettingType.LIST,
)
MEDIUM, LOW = Importance.MEDIUM, Importance.LOW
PER_BROKER = Dynamic.PER_BROKER

NONE, REQUESTED, REQUIRED = "none", "requested", "required"
JKS, PKCS12, PEM = "JKS", "PKCS12", "PEM"
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")

SSL_KEYSTORE_TYPE = Setting(
    "ssl.keystore.type",
    STRING,
    JKS,
    MEDIUM,
    (
        "The format of the key store: PEM or PKCS12. A file in PKCS12 is also read with JKS, the "
        "default, as Java does. Files in Java's own JKS are refused."
    ),
    None,
    PER_BROKER,
)
SSL_KEYSTORE_LOCATION = Setting[str | None](
    "ssl.keystore.location",
    STRING,
    None,
    MEDIUM,
    (
        "The file with the private key and the certificate chain. It is read again when it "
        "changes, and new connections use the new certificate."
    ),
    None,
    PER_BROKER,
)
SSL_KEYSTORE_PASSWORD = Setting[str | None](
    "ssl.keystore.password",
    PASSWORD,
    None,
    MEDIUM,
    "The password of a PKCS12 key store.",
    None,
    PER_BROKER,
)
SSL_KEY_PASSWORD = Setting[str | None](
    "ssl.key.password",
    PASSWORD,
    None,
    MEDIUM,
    "The password of an encrypted private key in PEM format.",
    None,
    PER_BROKER,
)
SSL_KEYSTORE_KEY = Setting[str | None](
    "ssl.keystore.key",
    PASSWORD,
    None,
    MEDIUM,
    "The private key in PEM format, in place of a file. Needs ssl.keystore.type=PEM.",
    None,
    PER_BROKER,
)
SSL_KEYSTORE_CERTIFICATE_CHAIN = Setting[str | None](
    "ssl.keystore.certificate.chain",
    PASSWORD,
    None,
    MEDIUM,
    "The certificate chain in PEM format, in place of a file. Needs ssl.keystore.type=PEM.",
    None,
    PER_BROKER,
)
SSL_TRUSTSTORE_TYPE = Setting(
    "ssl.truststore.type",
    STRING,
    JKS,
    MEDIUM,
    "The format of the trust store, as in ssl.keystore.type.",
    None,
    PER_BROKER,
)
SSL_TRUSTSTORE_LOCATION = Setting[str | None](
    "ssl.truststore.location",
    STRING,
    None,
    MEDIUM,
    (
        "The file with the certificates that peers' certificates must be signed by. Without a "
        "trust store, those of the operating system are trusted."
    ),
    None,
    PER_BROKER,
)
SSL_TRUSTSTORE_PASSWORD = Setting[str | None](
    "ssl.truststore.password",
    PASSWORD,
    None,
    MEDIUM,
    "The password of a PKCS12 trust store.",
    None,
    PER_BROKER,
)
SSL_TRUSTSTORE_CERTIFICATES = Setting[str | None](
    "ssl.truststore.certificates",
    PASSWORD,
    None,
    MEDIUM,
    "The trusted certificates in PEM format, in place of a file. Needs ssl.truststore.type=PEM.",
    None,
    PER_BROKER,
)
SSL_CLIENT_AUTH = Setting(
    "ssl.client.auth",
    STRING,
    NONE,
    MEDIUM,
    (
        "Whether clients must present a certificate: required, requested (they may), or none. "
        "SASL_SSL listeners use it only with their own listener.name.<name>.ssl.client.auth."
    ),
    one_of(REQUIRED, REQUESTED, NONE),
    PER_BROKER,
)
SSL_PRINCIPAL_MAPPING_RULES = Setting(
    "ssl.principal.mapping.rules",
    STRING,
    "DEFAULT",
    LOW,
    (
        "How the distinguished name of a client certificate becomes the name of its principal: "
        "RULE:pattern/replacement/[LU] and DEFAULT, of which the first that matches applies."
    ),
)
SSL_PROTOCOL = Setting(
    "ssl.protocol",
    STRING,
    "TLSv1.3",
    MEDIUM,
    "The highest version of TLS: TLSv1.3 or TLSv1.2.",
    None,
    PER_BROKER,
)
SSL_ENABLED_PROTOCOLS = Setting[tuple[str, ...]](
    "ssl.enabled.protocols",
    LIST,
    TLS_VERSIONS,
    MEDIUM,
    "The versions of TLS that connections may use: TLSv1.2 and TLSv1.3.",
    None,
    PER_BROKER,
)
SSL_CIPHER_SUITES = Setting[tuple[str, ...]](
    "ssl.cipher.suites",
    LIST,
    (),
    MEDIUM,
    (
        "The cipher suites that connections may use, by Java's or OpenSSL's names. Empty: those "
        "that OpenSSL considers strong."
    ),
    None,
    PER_BROKER,
)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = Setting(
    "ssl.endpoint.identification.algorithm",
    STRING,
    "https",
    LOW,
    (
        "https: a client of TLS, including this node, refuses a server whose certificate is for "
        "another host name. Empty: it does not compare names."
    ),
    None,
    PER_BROKER,
)
SSL_ALLOW_DN_CHANGES = Setting(
    "ssl.allow.dn.changes",
    BOOLEAN,
    False,
    LOW,
    (
        "Whether a certificate that replaces another while the node runs may have another "
        "distinguished name."
    ),
)
SSL_ALLOW_SAN_CHANGES = Setting(
    "ssl.allow.san.changes",
    BOOLEAN,
    False,
    LOW,
    (
        "Whether a certificate that replaces another while the node runs may lack subject "
        "alternative names of it."
    ),
)

# Those that a listener may have a value of its own for, and that a client has.
SSL_SETTINGS: Mapping[str, Setting[Any]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Setting)
}


@dataclass(frozen=True, slots=True)
class SslConfig:
    """The values of one listener or client. `prefix` is that of their names in messages."""

    keystore_type: str = JKS
    keystore_location: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    keystore_key: str | None = field(default=None, repr=False)
    keystore_certificate_chain: str | None = field(default=None, repr=False)
    truststore_type: str = JKS
    truststore_location: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    truststore_certificates: str | None = field(default=None, repr=False)
    client_auth: str = NONE
    principal_mapping_rules: str = "DEFAULT"
    protocol: str = "TLSv1.3"
    enabled_protocols: tuple[str, ...] = TLS_VERSIONS
    cipher_suites: tuple[str, ...] = ()
    endpoint_identification_algorithm: str = "https"
    allow_dn_changes: bool = False
    allow_san_changes: bool = False
    prefix: str = ""

    @property
    def has_keystore(self) -> bool:
        return bool(self.keystore_location or self.keystore_key or self.keystore_certificate_chain)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the certificates come from."""
        return tuple(filter(None, (self.keystore_location, self.truststore_location)))


class InvalidSslError(ValueError):
    """TLS cannot be used with these settings, keys or certificates. `setting` is the one to look
    at, without the prefix of a listener."""

    def __init__(self, setting: Setting[Any], reason: str) -> None:
        super().__init__(reason)
        self.setting = setting
        self.reason = reason


class NotValidNowError(InvalidSslError):
    """The certificate has expired, or is not valid yet: later it may be."""


def ssl_config(value_of: Callable[[Setting[Any]], Any], prefix: str = "") -> SslConfig:
    """Return the values of a listener or client. `value_of` returns the value of a setting."""
    values = {
        name.removeprefix("ssl.").replace(".", "_"): value_of(setting)
        for name, setting in SSL_SETTINGS.items()
    }
    config = SslConfig(**values, prefix=prefix)
    _check_versions(config)
    return config


def listener_ssl_config(
    values: Values, listener_name: str, protocol: SecurityProtocol
) -> SslConfig:
    """Return the values of a listener. Raises InvalidSslError.

    As in Kafka, clients of a SASL_SSL listener are asked for a certificate only by the listener's
    own ssl.client.auth: SASL authenticates them.
    """

    def value_of(setting: Setting[Any]) -> Any:
        own = listener_setting(listener_name, setting)
        if values.is_set(own) or (protocol.is_sasl and setting is SSL_CLIENT_AUTH):
            return values[own]
        return values[setting]

    return ssl_config(value_of, f"listener.name.{listener_name.lower()}.")


def client_ssl_config(properties: Mapping[str, str]) -> SslConfig:
    """Return the values of a client's properties. Raises InvalidSslError."""

    def value_of(setting: Setting[Any]) -> Any:
        text = properties.get(setting.name)
        try:
            return setting.default_value() if text is None else setting.parse(text)
        except InvalidSettingError as error:
            raise InvalidSslError(setting, str(error)) from error

    return ssl_config(value_of)


def versions(config: SslConfig) -> tuple[str, ...]:
    """Return the versions of TLS that may be used. As in Java, ssl.protocol=TLSv1.2 excludes
    TLSv1.3; an empty ssl.enabled.protocols stands for all."""
    enabled = config.enabled_protocols or TLS_VERSIONS
    return tuple(
        version
        for version in TLS_VERSIONS
        if version in enabled and not (config.protocol == "TLSv1.2" and version == "TLSv1.3")
    )


def _check_versions(config: SslConfig) -> None:
    for setting, given in (
        (SSL_PROTOCOL, (config.protocol,)),
        (SSL_ENABLED_PROTOCOLS, config.enabled_protocols),
    ):
        # Java's name for any version.
        allowed = (*TLS_VERSIONS, "TLS") if setting is SSL_PROTOCOL else TLS_VERSIONS
        unknown = [version for version in given if version not in allowed]
        if unknown:
            raise InvalidSslError(
                setting,
                f"{','.join(unknown)} is not a version of TLS that Penstock supports. Use "
                f"{' or '.join(TLS_VERSIONS)}; older versions are insecure (RFC 8996)",
            )
    if not versions(config):
        raise InvalidSslError(
            SSL_ENABLED_PROTOCOLS,
            f"ssl.protocol={config.protocol} and ssl.enabled.protocols="
            f"{','.join(config.enabled_protocols)} leave no version of TLS",
        )
    algorithm = config.endpoint_identification_algorithm
    if algorithm.lower() not in ("", "https"):
        raise InvalidSslError(
            SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
            f"{algorithm} is not an algorithm that Penstock supports. Use https, or nothing to "
            "accept certificates of other hosts",
        )


def check_listener_ssl(values: Values) -> None:
    """Check the settings of all TLS listeners; files are read when the node starts."""
    for listener in listeners(values):
        if listener.security_protocol.is_tls:
            try:
                config = listener_ssl_config(values, listener.name, listener.security_protocol)
                if not config.has_keystore:
                    raise InvalidSslError(
                        SSL_KEYSTORE_LOCATION,
                        f"listener {listener.name} has security protocol "
                        f"{listener.security_protocol} and no key store: set ssl.keystore.location "
                        "and ssl.keystore.type",
                    )
            except InvalidSslError as error:
                own = listener_setting(listener.name, error.setting)
                setting = own if values.is_set(own) else error.setting
                raise InconsistentSettingsError(setting, error.reason) from error
