"""Requests that only the active controller can decide, sent on to it in Kafka's Envelope
(KIP-590)."""

from __future__ import annotations

import ipaddress
from typing import TypeVar, cast

from penstock.errors import ErrorCode, KafkaError
from penstock.node.broker.channel import ControllerChannel
from penstock.protocol.apis import api_of, response_class
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.headers import decode_response_header, encode_request_header
from penstock.protocol.internal.principal import DefaultPrincipalData
from penstock.protocol.internal.versioned import encode_versioned
from penstock.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

R = TypeVar("R")

# Nobody is asked who they are so far.
_ANONYMOUS = encode_versioned(DefaultPrincipalData(type="User", name="ANONYMOUS"))


async def forward(
    channel: ControllerChannel,
    request: object,
    version: int,
    client_id: str | None,
    peer: str,
    timeout_s: float,
) -> object:
    """The controller's response, as if the client had asked it itself."""
    key = api_of(type(request)).key
    envelope = EnvelopeRequest(
        request_data=encode_request_header(key, version, 0, client_id)
        + encode_bytes(request, version),
        request_principal=_ANONYMOUS,
        client_host_address=_packed(peer),
    )
    answer = await channel.call(envelope, EnvelopeResponse, timeout_s=timeout_s)
    if answer.error_code or answer.response_data is None:
        code = ErrorCode(answer.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
        raise KafkaError(
            code,
            (
                f"the controller did not take {api_of(type(request)).name} from this broker: "
                f"{code.name}"
            ),
        )
    _header, at = decode_response_header(key, version, answer.response_data)
    return cast(object, decode(response_class(key), version, answer.response_data[at:]))


def _packed(peer: str) -> bytes:
    """The address of host:port in the bytes that Java calls an InetAddress; that of this host where
    it is not an address."""
    try:
        return ipaddress.ip_address(peer.rpartition(":")[0]).packed
    except ValueError:
        return bytes([127, 0, 0, 1])
