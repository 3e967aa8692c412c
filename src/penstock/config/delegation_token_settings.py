"""Settings of delegation tokens (KIP-48)."""

from __future__ import annotations

from penstock.config.setting import Importance, Setting, SettingType, Values
from penstock.config.validators import at_least

DELEGATION_TOKEN_SECRET_KEY = Setting[str | None](
    "delegation.token.secret.key",
    SettingType.PASSWORD,
    None,
    Importance.MEDIUM,
    (
        "The key from which the secrets of delegation tokens are derived. All brokers and "
        "controllers need the same one. If it is not set, there are no delegation tokens."
    ),
)
DELEGATION_TOKEN_MAX_LIFETIME_MS = Setting(
    "delegation.token.max.lifetime.ms",
    SettingType.LONG,
    7 * 24 * 60 * 60 * 1000,
    Importance.MEDIUM,
    "How long a delegation token can be renewed after it was created.",
    at_least(1),
)
DELEGATION_TOKEN_EXPIRY_TIME_MS = Setting(
    "delegation.token.expiry.time.ms",
    SettingType.LONG,
    24 * 60 * 60 * 1000,
    Importance.MEDIUM,
    "How long a delegation token is valid before it must be renewed.",
    at_least(1),
)
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS = Setting(
    "delegation.token.expiry.check.interval.ms",
    SettingType.LONG,
    60 * 60 * 1000,
    Importance.LOW,
    "How often the active controller removes expired delegation tokens.",
    at_least(1),
)


def secret_key(values: Values) -> bytes | None:
    """Return the key of delegation tokens; None if there are none. As in Kafka an empty one is
    none."""
    text = values[DELEGATION_TOKEN_SECRET_KEY]
    return text.encode() if text else None
