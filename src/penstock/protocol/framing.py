"""Frames: four bytes of size, then the header and the message. Splitting a stream into them, and making them.

Pure: whoever reads the socket owns its buffer and asks here where the frames in it are. Nothing is copied.
"""

from __future__ import annotations

import struct
from typing import cast

from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol.apis import api_of
from penstock.protocol.codec import encode
from penstock.protocol.headers import encode_request_header, encode_response_header
from penstock.protocol.schema import Records

SIZE_BYTES = 4

_SIZE = struct.Struct(">i")
# A size read from the first bytes of something that is not Kafka's protocol at all.
_STRANGERS = {
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
    """The size of the frame whose four size bytes are at position; ProtocolError if it is negative or above the maximum."""
    size = cast(int, _SIZE.unpack_from(buffer, position)[0])
    if 0 <= size <= maximum:
        return size
    first = bytes(buffer[position : position + SIZE_BYTES])
    stranger = "TLS" if first.startswith(b"\x16\x03") else _STRANGERS.get(first)
    hint = f": the peer seems to speak {stranger}, not Kafka's protocol" if stranger else ""
    raise ProtocolError(f"a frame of {size} bytes, where at most {maximum} are taken{hint}")


def split_frames(buffer: Buffer, maximum: int) -> tuple[list[memoryview], int]:
    """The complete frames at the start of a buffer, as windows into it without their size bytes, and how many bytes they took in all."""
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
    """The same parts behind their size."""
    size = sum(map(len, parts))
    if size > 2**31 - 1:
        raise ValueError(f"a frame of {size} bytes is longer than Kafka's protocol can say")
    first = parts[0] if parts else b""
    if isinstance(first, bytes):
        return [_SIZE.pack(size) + first, *parts[1:]]
    return [_SIZE.pack(size), *parts]


def frame_response(response: object, version: int, correlation_id: int) -> list[Records]:
    """A whole response, ready to be sent: bytes, and between them the records as they are."""
    return frame(_behind(encode_response_header(api_of(type(response)).key, version, correlation_id), encode(response, version)))


def frame_request(request: object, version: int, correlation_id: int, client_id: str | None) -> list[Records]:
    """A whole request, ready to be sent."""
    return frame(_behind(encode_request_header(api_of(type(request)).key, version, correlation_id, client_id), encode(request, version)))


def _behind(header: bytes, parts: list[Records]) -> list[Records]:
    first = parts[0] if parts else b""
    return [header + first, *parts[1:]] if isinstance(first, bytes) else [header, *parts]
