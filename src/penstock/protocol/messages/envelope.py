"""Envelope: a broker forwards a client's request to the controller, with the client's principal and
address."""

from __future__ import annotations

from penstock.protocol.schema import blob, int16, message


@message(api_key=58, versions="0", flexible="0+")
class EnvelopeRequest:
    request_data: bytes = blob("0+")
    request_principal: bytes | None = blob("0+", nullable="0+")
    client_host_address: bytes = blob("0+")


@message(api_key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    response_data: bytes | None = blob("0+", nullable="0+", default=None)
    error_code: int = int16("0+")
