"""Encodes and decodes messages. The codec of a message and version is compiled on first use and
cached.

    decode(FetchRequest, 13, body)    the whole body must be one message
    encode(FetchResponse(...), 13)    returns parts: bytes, and the untouched records between them

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
    """Decode a buffer that holds exactly one message."""
    message, position = decode_from(cls, version, buffer, 0)
    if position != len(buffer):
        raise ProtocolError(
            f"{cls.__name__} v{version}: {len(buffer) - position} bytes are left over after the "
            "message"
        )
    return message


def decode_from(cls: type[T], version: int, buffer: Buffer, position: int) -> tuple[T, int]:
    """Decode the message at a position. Return it and the position after it."""
    return decoder_of(cls, version)(buffer, position)


def decoder_of(cls: type[T], version: int) -> Callable[[Buffer, int], tuple[T, int]]:
    """Return the function behind `decode_from`, for callers that decode the same message often."""
    compiled = _decoders.get((cls, version))
    if compiled is None:
        compiled = _decoders[cls, version] = compile_decoder(cls, version)
    return compiled


def encode(message: object, version: int) -> list[Records]:
    """Return the message's parts in order: bytes, and the untouched records between them."""
    cls = type(message)
    compiled = _encoders.get((cls, version))
    if compiled is None:
        compiled = _encoders[cls, version] = compile_encoder(cls, version)
    return compiled(message)


def encode_struct(message: type, struct: object, version: int) -> bytes:
    """Return one struct of a message as it is encoded in an array, for an EncodedArray. The struct
    has no records."""
    cls = type(struct)
    compiled = _encoders.get((cls, version))
    if compiled is None:
        compiled = _encoders[cls, version] = compile_encoder(message, version, cls)
    return cast(bytes, compiled(struct)[0])


def encode_struct_parts(message: type, struct: object, version: int) -> list[Records]:
    """Return one struct of a message with records as it is encoded in an array, for an
    EncodedParts."""
    cls = type(struct)
    compiled = _encoders.get((cls, version))
    if compiled is None:
        compiled = _encoders[cls, version] = compile_encoder(message, version, cls)
    return compiled(struct)


def encode_bytes(message: object, version: int) -> bytes:
    """Return the message as one byte string. Its records, if any, must be bytes."""
    parts = encode(message, version)
    return (
        parts[0]
        if len(parts) == 1 and type(parts[0]) is bytes
        else b"".join(cast("list[Any]", parts))
    )
