"""Settings of SASL/OAUTHBEARER: which tokens a listener accepts, and where this node gets its own
(KIP-768)."""

from __future__ import annotations

from penstock.config.setting import Importance, Setting, SettingType
from penstock.config.validators import list_of

JWKS_ENDPOINT_URL = Setting[str | None](
    "sasl.oauthbearer.jwks.endpoint.url",
    SettingType.STRING,
    None,
    Importance.MEDIUM,
    (
        "Where the keys are that tokens are signed with, as a JSON Web Key Set: a file:, http: or "
        "https: URL. It must be in penstock.sasl.oauthbearer.allowed.urls."
    ),
)
JWKS_ENDPOINT_REFRESH_MS = Setting(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    SettingType.LONG,
    3_600_000,
    Importance.LOW,
    "How often the keys are read again. They are also read if a token names an unknown key.",
)
JWKS_ENDPOINT_RETRY_BACKOFF_MS = Setting(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    SettingType.LONG,
    100,
    Importance.LOW,
    "The first pause before the keys are read again after a failure.",
)
JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = Setting(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    SettingType.LONG,
    10_000,
    Importance.LOW,
    "The longest pause before the keys are read again after a failure.",
)
EXPECTED_AUDIENCE = Setting[tuple[str, ...]](
    "sasl.oauthbearer.expected.audience",
    SettingType.LIST,
    (),
    Importance.LOW,
    "One of these must be in the aud claim of a token. Empty: it is not checked.",
)
EXPECTED_ISSUER = Setting[str | None](
    "sasl.oauthbearer.expected.issuer",
    SettingType.STRING,
    None,
    Importance.LOW,
    "The iss claim that a token must have. Not set: it is not checked.",
)
CLOCK_SKEW_SECONDS = Setting(
    "sasl.oauthbearer.clock.skew.seconds",
    SettingType.INT,
    30,
    Importance.LOW,
    "How much the clocks of this node and of the issuer may differ.",
)
SUB_CLAIM_NAME = Setting(
    "sasl.oauthbearer.sub.claim.name",
    SettingType.STRING,
    "sub",
    Importance.LOW,
    "The claim with the name of the principal.",
)
SERVER_CALLBACK_HANDLER_CLASS = Setting[str | None](
    "sasl.server.callback.handler.class",
    SettingType.CLASS,
    None,
    Importance.MEDIUM,
    (
        "Accepted for OAUTHBEARER with the name of Kafka's OAuthBearerValidatorCallbackHandler, "
        "which is what Penstock does. No class is loaded."
    ),
)
ALLOWED_URLS = Setting[tuple[str, ...]](
    "penstock.sasl.oauthbearer.allowed.urls",
    SettingType.LIST,
    (),
    Importance.MEDIUM,
    (
        "The URLs that sasl.oauthbearer.jwks.endpoint.url and sasl.oauthbearer.token.endpoint.url "
        "may have, as Kafka's system property org.apache.kafka.sasl.oauthbearer.allowed.urls."
    ),
    list_of(),
)

TOKEN_ENDPOINT_URL = Setting[str | None](
    "sasl.oauthbearer.token.endpoint.url",
    SettingType.STRING,
    None,
    Importance.MEDIUM,
    (
        "Where this node gets the token that it logs in to other nodes with: a file: URL of a file "
        "with a token, or the https: URL of an issuer. It must be in "
        "penstock.sasl.oauthbearer.allowed.urls."
    ),
)
CLIENT_ID = Setting[str | None](
    "sasl.oauthbearer.client.credentials.client.id",
    SettingType.STRING,
    None,
    Importance.MEDIUM,
    "The client id that an issuer gives a token for. clientId of sasl.jaas.config is the same.",
)
CLIENT_SECRET = Setting[str | None](
    "sasl.oauthbearer.client.credentials.client.secret",
    SettingType.PASSWORD,
    None,
    Importance.MEDIUM,
    "The secret of the client id. clientSecret of sasl.jaas.config is the same.",
)
SCOPE = Setting[str | None](
    "sasl.oauthbearer.scope",
    SettingType.STRING,
    None,
    Importance.MEDIUM,
    "The scope that a token is asked for. scope of sasl.jaas.config is the same.",
)

VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
# Settings that a listener may have a value of its own for, with the mechanism before the name.
OF_MECHANISM = (
    JWKS_ENDPOINT_URL,
    JWKS_ENDPOINT_REFRESH_MS,
    JWKS_ENDPOINT_RETRY_BACKOFF_MS,
    JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS,
    EXPECTED_AUDIENCE,
    EXPECTED_ISSUER,
    CLOCK_SKEW_SECONDS,
    SUB_CLAIM_NAME,
    SERVER_CALLBACK_HANDLER_CLASS,
    TOKEN_ENDPOINT_URL,
    CLIENT_ID,
    CLIENT_SECRET,
    SCOPE,
)
