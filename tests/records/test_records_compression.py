"""Every codec in both directions, the framings of other clients, and data with a wrong size."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records.batch import CorruptBatch
from penstock.records.compression import Codec, compress, decompress

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"the quick brown fox jumps over the lazy dog, " * 5000


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=2000), times=st.sampled_from([1, 2, 100]))
@settings(max_examples=50)
def test_round_trip(codec: Codec, data: bytes, times: int) -> None:
    assert decompress(codec, compress(codec, data * times)) == data * times


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer(codec: Codec, kind: type[bytes]) -> None:
    packed = compress(codec, kind(TEXT))
    assert type(packed) is bytes
    unpacked = decompress(codec, kind(packed))
    assert type(unpacked) is bytes
    assert unpacked == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_data_is_smaller(codec: Codec) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 10


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 12), (Codec.ZSTD, -5, 19)]
)
def test_levels(codec: Codec, low: int, high: int) -> None:
    data = b"".join(b"%d;%d\n" % (i * i, i % 97) for i in range(10000))
    fast, dense = compress(codec, data, low), compress(codec, data, high)
    assert len(dense) < len(fast)
    assert decompress(codec, fast) == decompress(codec, dense) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_level_minus_one_is_the_default(codec: Codec) -> None:
    assert compress(codec, TEXT, -1) == compress(codec, TEXT)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_concatenated_frames_are_read_as_one(codec: Codec) -> None:
    assert decompress(codec, compress(codec, TEXT) + compress(codec, b"and on")) == TEXT + b"and on"


def test_gzip_matches_the_standard_library() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert decompress(Codec.GZIP, gzip.compress(TEXT)) == TEXT


def test_snappy_raw_block_of_librdkafka() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_snappy_is_written_in_the_framing_of_java() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16].hex() == "82534e4150505900" + "00000001" * 2
    (length,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == TEXT[: 32 * 1024]


def test_lz4_frame_is_one_that_java_reads() -> None:
    packed = compress(Codec.LZ4, TEXT)
    assert packed[:4].hex() == "04224d18"
    flags = packed[4]
    assert flags >> 6 == 1, "version of the frame format"
    assert flags & 0x20, "Kafka's reader refuses blocks that depend on each other"
    assert not flags & 0x03, "no reserved bit, no dictionary"
    # The header checksum is the second byte of xxHash32 over flags and block size: 0xbd for these
    # two.
    assert packed[4:7].hex() == "7440bd"


def test_lz4_linked_blocks_of_other_writers_are_read() -> None:
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(TEXT))) == TEXT


@pytest.mark.parametrize("codec", list(Codec))
def test_the_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, limit=len(TEXT)) == TEXT
    with pytest.raises(CorruptBatch, match="more than the"):
        decompress(codec, packed, limit=len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_larger_than_the_first_buffer(codec: Codec) -> None:
    zeros = bytes(10_000_000)
    assert decompress(codec, compress(codec, zeros)) == zeros


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [b"", b"\1", b"\xff" * 50, b"not compressed at all, only text"])
def test_noise_is_corrupt(codec: Codec, data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, data)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_data_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, TEXT[:300])
    for size in range(len(packed)):
        if codec is Codec.SNAPPY and size == 16:
            continue  # The framing has no end mark: a header alone is an empty stream.
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:size])


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"\0\0", "length of a block is expected"),
        (struct.pack(">I", 5) + b"abc", "claims 5 bytes, but 3 are left"),
        (struct.pack(">I", 2**31), "claims 2147483648 bytes"),
        (struct.pack(">I", 0), "damaged"),
        # 200 MB claimed by two bytes of literal.
        (struct.pack(">I", 6) + bytes.fromhex("80a8d65f") + b"\0a", "cannot unfold"),
    ],
)
def test_bad_snappy_framing(tail: bytes, reason: str) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"good") + tail)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.data())
@settings(max_examples=100)
def test_damage_gives_corrupt_batch_or_other_bytes_within_the_limit(
    codec: Codec, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, TEXT[:700]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        unpacked = decompress(codec, packed, limit=1000)
    except CorruptBatch:
        return
    assert len(unpacked) <= 1000


LIMIT = 32 * 1024 * 1024

CHILD = """
import sys
from penstock.records.batch import CorruptBatch
from penstock.records.compression import Codec, compress, decompress

def peak_kb():
    # Not ru_maxrss, which a child process inherits from its parent.
    status = open("/proc/self/status")
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

codec, limit = Codec(int(sys.argv[1])), int(sys.argv[2])
bomb = open(sys.argv[3], "rb").read()
decompress(codec, compress(codec, b"warm"))
before = peak_kb()
try:
    decompress(codec, bomb, limit)
except CorruptBatch as error:
    assert "more than" in error.message, error
    print(peak_kb() - before)
"""


def gzip_stream() -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    megabyte = stream.compress(bytes(1 << 20)) + stream.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + megabyte * 1024 + stream.flush(zlib.Z_FINISH)


def zstd_stream(window: int) -> bytes:
    """Blocks of one repeated byte, 128 KB in 4 bytes, in a frame without its content size."""
    block = struct.pack("<I", (128 * 1024) << 3 | 1 << 1)[:3] + b"\0"
    last = struct.pack("<I", 1 << 3 | 1 << 1 | 1)[:3] + b"\0"
    return bytes.fromhex("28b52ffd00") + bytes([window]) + block * 8192 + last


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (Codec.GZIP, gzip_stream),
        (Codec.GZIP, lambda: compress(Codec.GZIP, bytes(1 << 24)) * 64),
        (Codec.ZSTD, lambda: zstd_stream(0x38)),
        (Codec.ZSTD, lambda: zstd_stream(0x88)),
        (Codec.ZSTD, lambda: compress(Codec.ZSTD, bytes(1 << 24)) * 64),
        (Codec.LZ4, lambda: compress(Codec.LZ4, bytes(1 << 24)) * 64),
        (Codec.SNAPPY, lambda: bytes.fromhex("8080808004") + b"\0a" + b"\xfe\1\0" * (1 << 24)),
        (Codec.SNAPPY, lambda: compress(Codec.SNAPPY, bytes(1 << 15)) * (1 << 15)),
    ],
    ids=[
        "gzip",
        "gzip-members",
        "zstd",
        "zstd-window-128MB",
        "zstd-frames",
        "lz4-frames",
        "snappy-one-block",
        "snappy-blocks",
    ],
)
def test_a_decompression_bomb_of_a_gigabyte_is_refused_within_bounded_memory(
    codec: Codec, bomb: Callable[[], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(bomb())
    arguments = [sys.executable, "-c", CHILD, str(int(codec)), str(LIMIT), str(path)]
    child = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert child.returncode == 0, child.stderr
    assert child.stdout, "the bomb was not refused"
    # One buffer of the limit, a history window of the codec that is at most as large, and a small
    # overhead.
    assert int(child.stdout) * 1024 < 2 * LIMIT + 8 * 1024 * 1024
