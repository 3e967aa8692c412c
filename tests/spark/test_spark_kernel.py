"""Both kernels on corrupt records with a valid CRC, and the compiled one on invalid buffers."""

from __future__ import annotations

import logging
import random
import struct
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from hatch_build import compile_kernel
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.errors import KafkaError
from penstock.ids import NO_TIMESTAMP
from penstock.records.batch import crc_of, read_header, write_crc
from penstock.records.build import build_batch
from penstock.records.record import Record, records_of
from penstock.spark.kernel import interface as kernel
from penstock.spark.kernel import load_kernel, pure
from penstock.spark.kernel.interface import Columns, CorruptRecords, DecompressedBatch, Kernel

END = 2**62
HEADER = limits.BATCH_HEADER_BYTES

plain = build_batch(
    [(b"key %d" % at, b"v" * at, (), 1_700_000_000_000 + at) for at in range(12)], base_offset=100
)
rich = build_batch(
    [(None, b"", (("a", b"1"), ("bb", None)) * (at % 3), NO_TIMESTAMP) for at in range(9)],
    base_offset=7,
)
long = build_batch([(b"k" * 200, b"v" * 70_000, (("h", b"h" * 300),), 0), (None, None, (), 2**40)])


def mutated(batch: bytes, rng: random.Random) -> bytes:
    """Change, drop or repeat some bytes, mostly after the header, and correct length and CRC."""
    changed = bytearray(batch)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = (
            rng.randrange(HEADER, len(changed)) if rng.random() < 0.8 else rng.randrange(23, HEADER)
        )
        kind = rng.random()
        if kind < 0.7 or at < HEADER:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, changed[at] ^ 1 << rng.randrange(8)))
        elif kind < 0.85:
            del changed[at : at + rng.randrange(1, 20)]
        else:
            changed[at:at] = changed[at : at + rng.randrange(1, 20)] or b"\xff" * 9
    changed[8:12] = struct.pack(">i", len(changed) - 12)
    write_crc(changed, 0, crc_of(changed, 0, len(changed)))
    return bytes(changed)


def records_in(columns: Columns) -> list[Record]:
    assert columns.headers is not None
    for column in columns:
        assert column is not None
        column.validate(full=True)
    lists = columns.headers.to_pylist()
    times = columns.timestamp.cast(pa.int64()).to_pylist()
    return [
        Record(
            offset,
            time // 1000,
            key,
            value,
            tuple((header["key"], header["value"]) for header in headers or ()),
        )
        for offset, time, key, value, headers in zip(
            columns.offset.to_pylist(),
            times,
            columns.key.to_pylist(),
            columns.value.to_pylist(),
            lists,
            strict=True,
        )
    ]


def outcome(kernel: Kernel, data: bytes) -> list[Record] | None:
    """Decode with a kernel; None if it refuses the records."""
    try:
        return records_in(
            kernel.decode(
                [DecompressedBatch(read_header(data), memoryview(data)[HEADER:])],
                0,
                END,
                headers=True,
            )
        )
    except CorruptRecords:
        return None


def expected(data: bytes) -> list[Record] | None:
    """Decode with penstock.records, and refuse timestamps that overflow in microseconds."""
    try:
        records = list(
            records_of(
                data, read_header(data)._replace(attributes=read_header(data).attributes & ~7)
            )
        )
    except KafkaError:
        return None
    overflow = any(abs(record.timestamp) > 2**63 // 1000 for record in records)
    return None if overflow else records


@pytest.mark.parametrize("batch", [plain, rich, long], ids=["plain", "rich", "long"])
@pytest.mark.parametrize("seed", range(20))
def test_kernels_agree_with_penstock_records_on_corrupt_records(
    compiled: Kernel, batch: bytes, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        data = mutated(batch, rng)
        result = expected(data)
        assert outcome(compiled, data) == result
        assert outcome(pure, data) == result


@given(st.binary(max_size=200), st.integers(-1, 2**31 - 1), st.integers(-1, 2**31 - 1))
def test_arbitrary_bytes(compiled: Kernel, data: bytes, count: int, last_delta: int) -> None:
    header = read_header(plain)._replace(record_count=count, last_offset_delta=last_delta)
    for implementation in (compiled, pure):
        try:
            columns = implementation.decode([DecompressedBatch(header, data)], 0, END, headers=True)
        except CorruptRecords:
            continue
        assert len(columns.offset) == count


def test_limits_equal_those_of_python(native: ModuleType) -> None:
    assert native.MAX_RECORD_HEADERS == limits.MAX_RECORD_HEADERS
    assert native.MIN_RECORD_BYTES == limits.MIN_RECORD_BYTES
    assert (native.RECORD_OVERHEAD, native.HEADER_OVERHEAD) == (
        kernel.RECORD_OVERHEAD,
        kernel.HEADER_OVERHEAD,
    )


def int32s(*numbers: int) -> bytes:
    return struct.pack(f"={len(numbers)}i", *numbers)


GOOD = (None, int32s(0, 2), b"ab", 0, 1)
INVALID_COLUMNS = [
    (None, int32s(0), b"ab", 0, 1),  # Too few offsets.
    (None, int32s(0, 3), b"ab", 0, 1),  # Beyond the data.
    (None, int32s(2, 0), b"ab", 0, 1),  # End before start.
    (None, int32s(-1, 2), b"ab", 0, 1),
    (b"", int32s(0, 2), b"ab", 0, 1),  # Bitmap too short.
    (None, int32s(0, 2), b"ab", 1, 1),  # Slice out of bounds.
    (None, int32s(0, 2), b"ab", -1, 1),
    (None, int32s(0, 2), b"ab", 2**62, 2**62),
    (None, None, None, 0, 1),
]


@pytest.mark.parametrize("column", INVALID_COLUMNS)
def test_invalid_columns_are_refused(
    native: ModuleType, column: tuple[bytes | None, bytes | None, bytes | None, int, int]
) -> None:
    none = (None, None, None)
    for arguments in (
        (column, GOOD, none),
        (GOOD, column, none),
        (GOOD, GOOD, (column, GOOD, GOOD)),
        (GOOD, GOOD, (GOOD, column, GOOD)),
    ):
        with pytest.raises(ValueError, match=r"column|row"):
            native.encode(*arguments, None, 0, 1, 1000)
    with pytest.raises(ValueError, match="column"):
        native.partitions(column, 3)


def test_header_lists_shorter_than_the_rows_are_refused(native: ModuleType) -> None:
    two = (None, int32s(0, 1, 2), b"ab", 0, 2)
    with pytest.raises(ValueError, match="column of headers"):
        native.encode(two, two, ((None, int32s(0, 0), None, 0, 1), GOOD, GOOD), None, 0, 2, 1000)


def test_invalid_arguments_are_refused(native: ModuleType) -> None:
    with pytest.raises(OverflowError):
        native.decode([], 5, 4, True)
    with pytest.raises(ValueError, match="partition"):
        native.partitions(GOOD, 0)
    with pytest.raises(ValueError, match="rows"):
        native.encode(GOOD, GOOD, (None, None, None), b"", 0, 1, 1000)
    with pytest.raises(TypeError):
        native.encode(3, GOOD, (None, None, None), None, 0, 1, 1000)


@pytest.fixture
def without_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "penstock.spark.kernel._native", None)
    monkeypatch.delitem(sys.modules, "penstock.spark.kernel.compiled", raising=False)
    monkeypatch.delattr("penstock.spark.kernel.compiled", raising=False)
    monkeypatch.delattr("penstock.spark.kernel._native", raising=False)


@pytest.mark.usefixtures("without_compiled")
def test_missing_compiled_kernel_logs_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        assert load_kernel() is pure
    (line,) = caplog.messages
    assert "without its compiled decode kernel" in line


def test_missing_compiler_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert compile_kernel(tmp_path, tmp_path / "kernel") == "no C compiler found"
