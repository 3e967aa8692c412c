"""SaslAuthenticate: carries the SASL exchange, after SaslHandshake."""

from __future__ import annotations

from penstock.protocol.schema import blob, int16, int64, message, string


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = blob("0+")


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = blob("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
