"""Failed handshakes: their reasons for operators, and the lines of the log."""

from __future__ import annotations

import logging
import ssl

from penstock.limits import HANDSHAKE_TIMEOUT_S
from penstock.server.rare_lines import RareLines

log = logging.getLogger(__name__)

PLAINTEXT = (
    "the peer sent bytes that are not TLS. Clients of this listener need security.protocol=SSL or "
    "SASL_SSL"
)
SILENT = f"the peer sent nothing for {HANDSHAKE_TIMEOUT_S:g} s"
SLOW = f"the handshake took longer than {HANDSHAKE_TIMEOUT_S:g} s"
STALLED = "the peer did not answer in its handshake, and others wait for theirs"
ANOTHER_KEY = (
    "the peer sends no key of a group of this node (X25519, P-256, P-384, P-521, X448), and the "
    "handshakes of others such run"
)
CLOSED = "the peer closed the connection in the handshake"

_REASONS = {
    "UNSUPPORTED_PROTOCOL": (
        "the peer offers only versions of TLS that are not enabled (ssl.enabled.protocols)"
    ),
    "VERSION_TOO_LOW": (
        "the peer offers only versions of TLS that are not enabled (ssl.enabled.protocols)"
    ),
    "WRONG_VERSION_NUMBER": PLAINTEXT,
    "HTTP_REQUEST": PLAINTEXT,
    "NO_SHARED_CIPHER": (
        "the peer and this listener have no cipher suite in common (ssl.cipher.suites)"
    ),
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "the peer presented no certificate, and ssl.client.auth=required"
    ),
}
# Alerts by which a peer refuses the certificate of this node.
_ALERTS = ("CERTIFICATE_UNKNOWN", "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED")


def reason_of(error: Exception) -> str:
    """Return why a handshake failed, for an operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        name = error.reason or ""
        if name in _REASONS:
            return _REASONS[name]
        if "ALERT" in name and name.endswith(_ALERTS):
            return (
                f"the peer refuses this node's certificate ({name.lower().replace('_', ' ')}): its "
                "trust store must have the issuer, and the certificate the name of this host"
            )
        return name.lower().replace("_", " ") or str(error)
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return SLOW
    if isinstance(error, ConnectionError):
        return CLOSED
    return str(error) or type(error).__name__


class FailureLog:
    def __init__(self) -> None:
        self._lines = RareLines()

    def add(self, address: str, listener_name: str, reason: str, now: float) -> None:
        note = self._lines.note(address, reason, now)
        if note is not None:
            log.warning(
                "TLS handshake with %s on %s failed: %s%s", address, listener_name, reason, note
            )
