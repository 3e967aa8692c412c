"""Settings of the page of metrics. Kafka has JMX in its place."""

from __future__ import annotations

import re

from penstock.config.listeners import HOST, MAX_PORT
from penstock.config.quorum import Address
from penstock.config.setting import (
    Importance,
    InconsistentSettingsError,
    Setting,
    SettingType,
    Values,
    require,
)
from penstock.config.validators import at_least

_LISTENER = re.compile(
    rf"(?:(https?)://)?\[?({HOST})\]?:([0-9]{{1,5}})/?", re.ASCII | re.IGNORECASE
)
# The TLS settings of https://host:port are those of a listener with this name:
# listener.name.metrics.ssl.*, and else ssl.*.
METRICS_TLS_NAME = "METRICS"

METRICS_LISTENER = Setting(
    "penstock.metrics.listener",
    SettingType.STRING,
    "",
    Importance.MEDIUM,
    (
        "The address at which this node serves its metrics in Prometheus's text format, as "
        "http://host:port or, with TLS, https://host:port. Without a host, all addresses. Empty: "
        "there is no page, and requests are not timed."
    ),
)
METRICS_TOKEN = Setting[str | None](
    "penstock.metrics.token",
    SettingType.PASSWORD,
    None,
    Importance.MEDIUM,
    (
        "The bearer token that a scrape must present. Without one, everybody who reaches the "
        "listener can read the metrics, with the names of topics and groups."
    ),
)
METRICS_PER_PARTITION = Setting(
    "penstock.metrics.per.partition",
    SettingType.BOOLEAN,
    False,
    Importance.LOW,
    (
        "Whether the page has series for every partition. A scrape can also ask for them, with "
        "?partitions=1."
    ),
)
METRICS_MAX_TOPICS = Setting(
    "penstock.metrics.max.topics",
    SettingType.INT,
    1_000,
    Importance.LOW,
    (
        "The most topics, and the most groups, that have series of their own. The others are only "
        "in the sums of the node."
    ),
    at_least(0),
)


def metrics_listener(values: Values) -> Address | None:
    """Return the address of the metrics listener; None if there is none. Raises
    InconsistentSettingsError."""
    text = values[METRICS_LISTENER].strip()
    if not text:
        return None
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise InconsistentSettingsError(
            METRICS_LISTENER, f"{text!r} is not in the form http://host:port or https://host:port"
        )
    host, port = match[2], int(match[3])
    require(port <= MAX_PORT, METRICS_LISTENER, f"{port} in {text!r} is not a port")
    return Address(host, port)


def metrics_has_tls(values: Values) -> bool:
    return values[METRICS_LISTENER].strip().lower().startswith("https://")


def check_metrics_listener(values: Values) -> None:
    metrics_listener(values)
    token = values[METRICS_TOKEN]
    require(
        token is None or (token != "" and token.isascii() and token.isprintable()),
        METRICS_TOKEN,
        "the token must have printable ASCII characters: set it, or remove the setting",
    )
