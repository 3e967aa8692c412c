"""Measures of TLS; only nodes with a TLS listener have them."""

from __future__ import annotations

from penstock.metrics.measure import counter, gauge

_SOCKET = "kafka.server:type=socket-server-metrics,listener={{listener}},attribute={}"

HANDSHAKES = counter(
    "tls_handshakes",
    "TLS handshakes by outcome: completed and failed.",
    _SOCKET.format("successful-authentication-total"),
    ("outcome",),
)
HANDSHAKES_NOW = gauge(
    "tls_handshakes_unfinished",
    (
        "Connections that have not completed their TLS handshake, by stage: silent ones have sent "
        "nothing, ready ones wait for a place, running ones have one."
    ),
    "",
    ("stage",),
)
CERTIFICATE_END = gauge(
    "tls_certificate_not_after_seconds",
    "When the certificate of new connections expires, in seconds since 1970, by listener.",
    "",
    ("listener",),
)
RELOADS = counter(
    "tls_reloads",
    (
        "Changes of TLS settings and files while the node runs, by listener and outcome: used, or "
        "failed, after which the former ones stay."
    ),
    "",
    ("listener", "outcome"),
)
