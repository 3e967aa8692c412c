"""Frames: a size in four bytes, then the header and the message. Splits a stream into frames, and
builds them.

The reader of a socket owns the buffer; these functions return views of the frames in it and copy
nothing.
"""

from __future__ import annotations

import struct
from typing import cast

from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol.apis import api_of
from penstock.protocol.codec import encode
from penstock.protocol.headers import encode_request_header, response_header_version
from penstock.protocol.schema import Records

SIZE_BYTES = 4
MAX_FRAME_BYTES = 2**31 - 1

_SIZE = struct.Struct(">i")
_response_heads: dict[tuple[type, int], struct.Struct] = {}
# The first bytes of other protocols, which a frame size would be read from.
_OTHER_PROTOCOLS = {
    b"GET ": "HTTP",
    b"POST": "HTTP",
    b"PUT ": "HTTP",
    b"HEAD": "HTTP",
    b"OPTI": "HTTP",
    b"HTTP": "HTTP",
    b"PRI ": "HTTP/2",
    b"SSH-": "SSH",
}


def frame_size(buffer: Buffer, position: int, maximum: int) -> int:
    """Return the size of the frame at a position. Raise ProtocolError if it is negative or above
    the maximum."""
    size = cast(int, _SIZE.unpack_from(buffer, position)[0])
    if 0 <= size <= maximum:
        return size
    first = bytes(buffer[position : position + SIZE_BYTES])
    other = "TLS" if first.startswith(b"\x16\x03") else _OTHER_PROTOCOLS.get(first)
    hint = f": the peer appears to speak {other}, not Kafka's protocol" if other else ""
    raise ProtocolError(f"invalid frame size {size}, at most {maximum} is allowed{hint}")


def split_frames(buffer: Buffer, maximum: int) -> tuple[list[memoryview], int]:
    """Return views of the complete frames at the start of a buffer, without their size bytes, and
    the total number of bytes that they take."""
    frames: list[memoryview] = []
    view, position = memoryview(buffer), 0
    while len(view) - position >= SIZE_BYTES:
        start = position + SIZE_BYTES
        stop = start + frame_size(view, position, maximum)
        if stop > len(view):
            break
        frames.append(view[start:stop])
        position = stop
    return frames, position


def frame(parts: list[Records]) -> list[Records]:
    """Return the parts with their total size in front."""
    size = sum(map(len, parts))
    if size > MAX_FRAME_BYTES:
        raise _too_long(size)
    first = parts[0] if parts else b""
    if isinstance(first, bytes):
        return [_SIZE.pack(size) + first, *parts[1:]]
    return [_SIZE.pack(size), *parts]


def frame_response(response: object, version: int, correlation_id: int) -> list[Records]:
    """Return a framed response as parts to send: bytes, and between them the untouched records."""
    parts = encode(response, version)
    head = _response_head(type(response), version)
    size = head.size - SIZE_BYTES + sum(map(len, parts))
    if size > MAX_FRAME_BYTES:
        raise _too_long(size)
    # The first part is always bytes: records have a length in front of them.
    parts[0] = head.pack(size, correlation_id) + cast(bytes, parts[0])
    return parts


def _response_head(response: type, version: int) -> struct.Struct:
    """Return the format of a response's size and header. Header 0 is the correlation id; header 1
    adds a zero byte, for no tagged fields."""
    head = _response_heads.get((response, version))
    if head is None:
        with_tags = response_header_version(api_of(response).key, version) == 1
        head = _response_heads[response, version] = struct.Struct(">iix" if with_tags else ">ii")
    return head


def frame_request(
    request: object, version: int, correlation_id: int, client_id: str | None
) -> list[Records]:
    """Return a framed request as parts to send."""
    return frame(
        _prepend(
            encode_request_header(api_of(type(request)).key, version, correlation_id, client_id),
            encode(request, version),
        )
    )


def _prepend(header: bytes, parts: list[Records]) -> list[Records]:
    first = parts[0] if parts else b""
    return [header + first, *parts[1:]] if isinstance(first, bytes) else [header, *parts]


def _too_long(size: int) -> ValueError:
    return ValueError(f"frame of {size} bytes exceeds the protocol's maximum of {MAX_FRAME_BYTES}")
