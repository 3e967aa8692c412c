"""Request and response headers, and which header version a message has.

A flexible request has header 2, any other header 1; a flexible response has header 1, any other
header 0. The exception is the ApiVersions response, which always has header 0: its client does not
know the broker's versions yet (KIP-511).
"""

from __future__ import annotations

import struct

from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol.apis import find_api
from penstock.protocol.codec import decode_from, encode_bytes
from penstock.protocol.schema import int16, int32, message, string

API_VERSIONS_KEY = 18

_KEY_AND_VERSION = struct.Struct(">hh")
KEY_AND_VERSION_BYTES = _KEY_AND_VERSION.size


@message(versions="1-2", flexible="2+")
class RequestHeader:
    request_api_key: int = int16("1+")
    request_api_version: int = int16("1+")
    correlation_id: int = int32("1+")
    client_id: str | None = string("1+", nullable="1+", never_compact=True)


@message(versions="0-1", flexible="1+")
class ResponseHeader:
    correlation_id: int = int32("0+")


def request_header_version(api_key: int, version: int) -> int:
    return 2 if find_api(api_key).flexible(version) else 1


def response_header_version(api_key: int, version: int) -> int:
    return 1 if api_key != API_VERSIONS_KEY and find_api(api_key).flexible(version) else 0


def decode_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """Decode the header at a position. Return it and the position of the body. The header of any
    version of a known API can be decoded, even of one that is not served."""
    if len(buffer) - position < KEY_AND_VERSION_BYTES:
        raise ProtocolError(
            f"a request of {len(buffer) - position} bytes is too short for a header"
        )
    api_key, version = _KEY_AND_VERSION.unpack_from(buffer, position)
    return decode_from(RequestHeader, request_header_version(api_key, version), buffer, position)


def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    header = RequestHeader(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return encode_bytes(header, request_header_version(api_key, version))


def decode_response_header(
    api_key: int, version: int, buffer: Buffer
) -> tuple[ResponseHeader, int]:
    return decode_from(ResponseHeader, response_header_version(api_key, version), buffer, 0)
