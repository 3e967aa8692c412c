"""Encoding and decoding messages. The codec of a message and version is compiled when it is first
used, and kept.

    decode(FetchRequest, 13, body)          the whole body must be one message
    encode(FetchResponse(...), 13)          parts: bytes, and the records as the objects they were
    given as

Whatever a peer sends, decoding raises ProtocolError or returns a message, in bounded time and
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol.compile_decoder import Decoder, compile_decoder
from penstock.protocol.compile_encoder import Encoder, compile_encoder
from penstock.protocol.schema import Records

T = TypeVar("T")

_decoders: dict[tuple[type, int], Decoder] = {}
_encoders: dict[tuple[type, int], Encoder] = {}


def decode(cls: type[T], version: int, buffer: Buffer) -> T:
    """The message that the buffer holds, all of it."""
    message, position = decode_from(cls, version, buffer, 0)
    if position != len(buffer):
        raise ProtocolError(
            f"{cls.__name__} v{version}: {len(buffer) - position} bytes are left over after the "
            "message"
        )
    return message


def decode_from(cls: type[T], version: int, buffer: Buffer, position: int) -> tuple[T, int]:
    """The message that begins at a position, and the position after it."""
    return decoder_of(cls, version)(buffer, position)


def decoder_of(cls: type[T], version: int) -> Callable[[Buffer, int], tuple[T, int]]:
    """What `decode_from` calls: for whoever decodes the same message again and again."""
    compiled = _decoders.get((cls, version))
    if compiled is None:
        compiled = _decoders[cls, version] = compile_decoder(cls, version)
    return compiled


def encode(message: object, version: int) -> list[Records]:
    """The message's parts in order: bytes, and records as they are. Nothing else tells them apart,
    and a sender need not."""
    cls = type(message)
    compiled = _encoders.get((cls, version))
    if compiled is None:
        compiled = _encoders[cls, version] = compile_encoder(cls, version)
    return compiled(message)


def encode_bytes(message: object, version: int) -> bytes:
    """The message as one byte string; its records, if it has any, must be bytes themselves."""
    parts = encode(message, version)
    return (
        parts[0]
        if len(parts) == 1 and type(parts[0]) is bytes
        else b"".join(cast("list[Any]", parts))
    )
