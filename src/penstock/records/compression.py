"""The codecs of record batches: Kafka's framing of each, and a bound on the decompressed size.

Does not know what is compressed. Every decompression writes into a buffer of bounded size, so that
a decompression bomb fails when the buffer is full.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum

import cramjam

from penstock.ids import Buffer
from penstock.limits import MAX_DECOMPRESSED_BYTES, SNAPPY_MAX_RATIO
from penstock.records.batch import CorruptBatch


class Codec(IntEnum):
    """The number of a codec in a batch's attributes. The names, in lower case, are those of
    compression.type."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Kafka's defaults (KIP-390). cramjam's default for zstd is slower.
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3

# Java clients write the framing of snappy-java (xerial), librdkafka writes one raw block; readers
# accept both.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = struct.Struct(">I")
# In the place of a length, this is the first word of another header: streams may be concatenated.
_XERIAL_MAGIC_WORD = int.from_bytes(_XERIAL_MAGIC[:4], "big")

# Kafka's default level selects the fast compressor; every other level is one of the high
# compressor.
_LZ4_LEVEL, _LZ4_FAST = 9, 1

_FIRST_GUESS_RATIO = 10
_FIRST_GUESS_BYTES = 4096


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return data compressed in Kafka's framing for record batches. Without a level, or with -1,
    the level is Kafka's default; snappy has none."""
    if level == -1 and codec is not Codec.ZSTD:
        level = None
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL if level is None else level))
    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        # Kafka's Java reader supports only frames with independent blocks, and cramjam.lz4.compress
        # links them.
        compressor = cramjam.lz4.Compressor(
            level=_LZ4_FAST if level in (None, _LZ4_LEVEL) else level, block_linked=False
        )
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
    return bytes(data)


def decompress(codec: Codec, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return decompressed data. Raises CorruptBatch if the data is damaged or decompresses to more
    than `limit` bytes; memory use is bounded by the limit.

    Concatenated frames are read as one.
    """
    if codec is Codec.GZIP:
        return _decompress_bounded(codec, cramjam.gzip.decompress_into, data, limit)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(data, limit)
    if codec is Codec.LZ4:
        return _decompress_bounded(codec, cramjam.lz4.decompress_into, data, limit)
    if codec is Codec.ZSTD:
        return _decompress_bounded(codec, cramjam.zstd.decompress_into, data, limit)
    if len(data) > limit:
        raise CorruptBatch(f"{len(data)} bytes of records are more than the {limit} allowed")
    return bytes(data)


def _decompress_bounded(
    codec: Codec, decompress_into: Callable[[Buffer, Buffer], int], data: Buffer, limit: int
) -> bytes:
    """Try a buffer that fits ordinary data, then one of the limit: the size of the result is not
    known in advance."""
    guess = min(limit, _FIRST_GUESS_BYTES + _FIRST_GUESS_RATIO * len(data))
    try:
        return _decompress_into(decompress_into, data, guess)
    except cramjam.DecompressionError as error:
        reason = error
    if guess < limit:
        try:
            return _decompress_into(decompress_into, data, limit)
        except cramjam.DecompressionError as error:
            reason = error
    message = (
        f"{len(data)} bytes of {codec.name.lower()} data are damaged or unfold to more than "
        f"the {limit} bytes allowed: {reason}"
    )
    raise CorruptBatch(message) from reason


def _decompress_into(
    decompress_into: Callable[[Buffer, Buffer], int], data: Buffer, size: int
) -> bytes:
    # A bytearray is zero-filled immediately. The kernel allocates the pages of bytes(size) only
    # when they are written, and BytesIO gives write access without a copy.
    with io.BytesIO(bytes(size)) as scratch, scratch.getbuffer() as output:
        written = decompress_into(data, output)
        return bytes(output[:written])


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_block(view, limit)
    parts = []
    for block in _xerial_blocks(view):
        part = _decompress_block(block, limit)
        limit -= len(part)
        parts.append(part)
    return b"".join(parts)


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position = 0
    end = len(view)
    while position < end:
        if end - position < _XERIAL_LENGTH.size:
            raise CorruptBatch(
                f"snappy data ends with {end - position} bytes where the length of a block is "
                "expected"
            )
        (length,) = _XERIAL_LENGTH.unpack_from(view, position)
        if length == _XERIAL_MAGIC_WORD:
            if end - position < len(_XERIAL_HEADER):
                raise CorruptBatch(
                    f"a snappy stream has {end - position} bytes of its header of "
                    f"{len(_XERIAL_HEADER)}"
                )
            position += len(_XERIAL_HEADER)
            continue
        position += _XERIAL_LENGTH.size
        if length > end - position:
            raise CorruptBatch(
                f"a snappy block claims {length} bytes, but {end - position} are left"
            )
        yield view[position : position + length]
        position += length


def _decompress_block(block: memoryview, limit: int) -> bytes:
    """Decompress one raw block. It begins with its uncompressed length, which is checked for
    plausibility first."""
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > limit:
            raise CorruptBatch(
                f"{len(block)} bytes of snappy data claim to unfold to {claimed}, more than the "
                f"{limit} still allowed"
            )
        if claimed > len(block) * SNAPPY_MAX_RATIO:
            raise CorruptBatch(f"{len(block)} bytes of snappy data cannot unfold to {claimed}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"{len(block)} bytes of snappy data are damaged: {error}") from error
