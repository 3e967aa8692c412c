"""SaslHandshake: a client names the SASL mechanism that it will authenticate with."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, message, string


@message(api_key=17, versions="0-1")
class SaslHandshakeRequest:
    mechanism: str = string("0+")


@message(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    error_code: int = int16("0+")
    mechanisms: tuple[str, ...] = array(string, "0+")
