"""Why a client with TLS or SASL cannot use an address: certificates, credentials, or a listener
without TLS."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator
from typing import cast

from penstock.client.errors import AuthenticationFailed, SaslRefused
from penstock.errors import KafkaError
from penstock.health.observations import Reach
from penstock.protocol.framing import frame_request
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.security.tls.network import TlsRefused

_SNIFF_S = 1.0
# Numbers of OpenSSL's X509_V_ERR_*.
_NOT_VALID_NOW = (9, 10)
_OTHER_NAME = (62, 64)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_ALERT = re.compile(r"(?i)\[ssl: \w*?alert_(\w+)\]")
_CORRELATION_ID = 7


async def refusal_of(error: KafkaError, host: str, port: int) -> tuple[Reach, str] | None:
    """Return what an error of a connection with TLS or SASL means, and its detail; None for other
    errors."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _certificate(cause), cause.verify_message
        if isinstance(cause, ssl.SSLError) and cause.reason in _NOT_TLS:
            return Reach.PLAINTEXT, ""
        if isinstance(cause, ConnectionResetError) and "TLS handshake" in str(cause):
            is_plain = await _speaks_kafka(host, port)
            return (Reach.PLAINTEXT, "") if is_plain else (Reach.HANDSHAKE, str(cause))
    for cause in _causes(error):
        if isinstance(cause, TlsRefused):
            return Reach.HANDSHAKE, str(cause)
        if isinstance(cause, SaslRefused | AuthenticationFailed):
            return Reach.CREDENTIALS, str(cause)
    # In TLS 1.3 a server refuses a client after the handshake is complete for the client.
    alert = _ALERT.search(error.message)
    if alert is not None:
        return Reach.HANDSHAKE, f"it sends the alert {alert[1].replace('_', ' ')}"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, the innermost first."""
    chain = []
    while error is not None:
        chain.append(error)
        error = error.__cause__
    yield from reversed(chain)


def _certificate(error: ssl.SSLCertVerificationError) -> Reach:
    if error.verify_code in _NOT_VALID_NOW:
        return Reach.CERTIFICATE_EXPIRED
    return Reach.CERTIFICATE_NAME if error.verify_code in _OTHER_NAME else Reach.CERTIFICATE


async def _speaks_kafka(host: str, port: int) -> bool:
    """Return True if the server answers ApiVersions without TLS."""
    frames = frame_request(ApiVersionsRequest(), 0, _CORRELATION_ID, "penstock-doctor")
    try:
        async with asyncio.timeout(_SNIFF_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"".join(cast("list[bytes]", frames)))
                head = await reader.readexactly(8)
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False
    return head[4:] == _CORRELATION_ID.to_bytes(4, "big")
