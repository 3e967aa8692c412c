"""Frames: four bytes of size, then the header and the message. Splitting a stream into them, and
making them.

Pure: whoever reads the socket owns its buffer and asks here where the frames in it are. Nothing is
copied.
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
    """The size of the frame whose four size bytes are at position; ProtocolError if it is negative
    or above the maximum."""
    size = cast(int, _SIZE.unpack_from(buffer, position)[0])
    if 0 <= size <= maximum:
        return size
    first = bytes(buffer[position : position + SIZE_BYTES])
    stranger = "TLS" if first.startswith(b"\x16\x03") else _STRANGERS.get(first)
    hint = f": the peer seems to speak {stranger}, not Kafka's protocol" if stranger else ""
    raise ProtocolError(f"a frame of {size} bytes, where at most {maximum} are taken{hint}")


def split_frames(buffer: Buffer, maximum: int) -> tuple[list[memoryview], int]:
    """The complete frames at the start of a buffer, as windows into it without their size bytes,
    and how many bytes they took in all."""
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
    if size > MAX_FRAME_BYTES:
        raise _too_long(size)
    first = parts[0] if parts else b""
    if isinstance(first, bytes):
        return [_SIZE.pack(size) + first, *parts[1:]]
    return [_SIZE.pack(size), *parts]


def frame_response(response: object, version: int, correlation_id: int) -> list[Records]:
    """A whole response, ready to be sent: bytes, and between them the records as they are."""
    parts = encode(response, version)
    head = _response_head(type(response), version)
    size = head.size - SIZE_BYTES + sum(map(len, parts))
    if size > MAX_FRAME_BYTES:
        raise _too_long(size)
    # The first part is always bytes: at the least there is a length before records.
    parts[0] = head.pack(size, correlation_id) + cast(bytes, parts[0])
    return parts


def _response_head(response: type, version: int) -> struct.Struct:
    """What a response begins with: its size, and its header of version 0 (the correlation id) or 1
    (and a zero: no tagged fields)."""
    head = _response_heads.get((response, version))
    if head is None:
        with_tags = response_header_version(api_of(response).key, version) == 1
        head = _response_heads[response, version] = struct.Struct(">iix" if with_tags else ">ii")
    return head


def frame_request(
    request: object, version: int, correlation_id: int, client_id: str | None
) -> list[Records]:
    """A whole request, ready to be sent."""
    return frame(
        _behind(
            encode_request_header(api_of(type(request)).key, version, correlation_id, client_id),
            encode(request, version),
        )
    )


def _behind(header: bytes, parts: list[Records]) -> list[Records]:
    first = parts[0] if parts else b""
    return [header + first, *parts[1:]] if isinstance(first, bytes) else [header, *parts]


def _too_long(size: int) -> ValueError:
    return ValueError(f"a frame of {size} bytes is longer than Kafka's protocol can say")
