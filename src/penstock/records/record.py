"""The records inside a batch: one decoder that checks every length and count, and control records.

`rows_of` returns whole records; `open_batch` returns keys and positions, for compaction. Appending
or serving a batch needs neither: brokers read headers only (`batch`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple, NoReturn, overload

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import Buffer
from penstock.limits import (
    BATCH_HEADER_BYTES,
    MAX_DECOMPRESSED_BYTES,
    MAX_RECORD_HEADERS,
    MIN_RECORD_BYTES,
)
from penstock.records.batch import BatchHeader, CorruptBatch, batches
from penstock.records.compression import Codec, decompress
from penstock.records.varint import ZIGZAG, decode

Headers = tuple[tuple[str, bytes | None], ...]
# Offset, timestamp, key, value, headers. A plain tuple, because readers decode millions.
Row = tuple[int, int, bytes | None, bytes | None, Headers]
# Offset delta, key, whether the record has a value, time delta, and where the record begins (with
# its length) and ends in the decompressed data.
Entry = tuple[int, bytes | None, bool, int, int, int]

_INT64 = 2**63
# The length of a record does not count itself.
_MIN_LENGTH = MIN_RECORD_BYTES - 1
_CONTROL_KEY = struct.Struct(">hh")
_END_TRANSACTION = struct.Struct(">hi")


@dataclass(frozen=True, slots=True)
class Record:
    """A record with its absolute offset and timestamp. In a batch with LogAppendTime the timestamp
    is the append time."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Opened(NamedTuple):
    """The decompressed records of a batch, and an entry for each."""

    data: bytes
    entries: list[Entry]


class ControlRecord(IntEnum):
    """The type of a control record, from its key."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_kind(key: bytes | None) -> ControlRecord:
    """Return the type of a control record. Readers skip unknown types, because later versions may
    add some."""
    if key is None or len(key) < _CONTROL_KEY.size:
        _refuse(
            f"the key of a control record has {_CONTROL_KEY.size} bytes, not "
            f"{None if key is None else len(key)}"
        )
    version, kind = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        _refuse(f"a control record cannot have the version {version}")
    return ControlRecord(kind) if kind in _KNOWN_KINDS else ControlRecord.UNKNOWN


_KNOWN_KINDS = frozenset(ControlRecord)


def coordinator_epoch(value: bytes | None) -> int:
    """Return the epoch of the transaction coordinator that wrote a COMMIT or ABORT marker."""
    if value is None or len(value) < _END_TRANSACTION.size:
        _refuse(
            f"the value of a transaction marker has {_END_TRANSACTION.size} bytes, not "
            f"{None if value is None else len(value)}"
        )
    version, epoch = _END_TRANSACTION.unpack_from(value)
    if version < 0:
        _refuse(f"a transaction marker cannot have the version {version}")
    return int(epoch)


def read_records(buffer: Buffer, position: int = 0) -> Iterator[Record]:
    """Yield the records of all whole batches in a buffer except control batches, as a
    read_uncommitted consumer sees them."""
    for at, header in batches(buffer, position):
        if not header.is_control:
            yield from records_of(buffer, header, at)


def records_of(buffer: Buffer, header: BatchHeader, position: int = 0) -> Iterator[Record]:
    """Return the records of the batch at a position, in order. The whole batch is decoded and
    checked first."""
    return (Record(*row) for row in rows_of(buffer, header, position))


def rows_of(
    buffer: Buffer, header: BatchHeader, position: int = 0, *, limit: int = MAX_DECOMPRESSED_BYTES
) -> list[Row]:
    """Return the same as `records_of`, as tuples in a list: it takes a little over half the
    time."""
    if header.record_count == 0:
        return []
    data = _payload(buffer, header, position, limit)
    try:
        return _decode(data, header, whole=True)
    except (IndexError, ValueError) as error:
        raise _damaged(header, error) from error


def open_batch(
    batch: Buffer, header: BatchHeader, *, limit: int = MAX_DECOMPRESSED_BYTES
) -> Opened:
    """Return the decompressed records of a batch and an entry for each, without copying values.
    Values and headers are not checked."""
    if header.record_count == 0:
        return Opened(b"", [])
    data = _payload(batch, header, 0, limit)
    try:
        return Opened(data, _decode(data, header, whole=False))
    except (IndexError, ValueError) as error:
        raise _damaged(header, error) from error


def _damaged(header: BatchHeader, error: Exception) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"the records of the batch at {header.base_offset} are damaged: {error}",
    )


def _payload(buffer: Buffer, header: BatchHeader, position: int, limit: int) -> bytes:
    end = position + header.size
    if header.size < BATCH_HEADER_BYTES or end > len(buffer):
        raise CorruptBatch(
            f"the batch at position {position} claims {header.size} bytes, but "
            f"{len(buffer) - position} are left"
        )
    if header.codec > Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch at {header.base_offset} has the unknown codec {header.codec}",
        )
    with memoryview(buffer) as view, view[position + BATCH_HEADER_BYTES : end] as payload:
        return decompress(Codec(header.codec), payload, limit)


@overload
def _decode(data: bytes, header: BatchHeader, *, whole: Literal[True]) -> list[Row]: ...
@overload
def _decode(data: bytes, header: BatchHeader, *, whole: Literal[False]) -> list[Entry]: ...
def _decode(data: bytes, header: BatchHeader, *, whole: bool) -> list[Row] | list[Entry]:
    """Decode all records: as rows if `whole`, else as entries.

    One loop serves both, and decodes varints of one and two bytes in place: a call for each field
    would double the time. Key and value need no check of their own: a wrong length leads past the
    record's end, or short of it, and that is checked.
    """
    count, total = header.record_count, len(data)
    if not 0 < count <= total // MIN_RECORD_BYTES:
        _refuse(f"a batch of {total} bytes cannot hold {count} records")
    rows: list[Row] = []
    entries: list[Entry] = []
    add_row, add_entry = rows.append, entries.append
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.log_append_time else None
    zigzag = ZIGZAG
    last_delta, max_delta = -1, header.last_offset_delta
    position = 0
    for _ in range(count):
        start = position
        if (byte := data[position]) < 0x80:
            length = zigzag[byte]
            position += 1
        elif (high := data[position + 1]) < 0x80:
            length = zigzag[byte + (high << 7) - 0x80]
            position += 2
        else:
            length, position = decode(data, position)
        end = position + length
        if length < _MIN_LENGTH or end > total:
            _refuse(f"a record claims {length} bytes, but {total - position} are left")

        position += 1  # attributes, of which none is in use
        if (byte := data[position]) < 0x80:
            time_delta = zigzag[byte]
            position += 1
        elif (high := data[position + 1]) < 0x80:
            time_delta = zigzag[byte + (high << 7) - 0x80]
            position += 2
        else:
            time_delta, position = decode(data, position)
        if (byte := data[position]) < 0x80:
            delta = zigzag[byte]
            position += 1
        elif (high := data[position + 1]) < 0x80:
            delta = zigzag[byte + (high << 7) - 0x80]
            position += 2
        else:
            delta, position = decode(data, position)
        if not last_delta < delta <= max_delta:
            _refuse(
                f"offset delta {delta} cannot follow {last_delta} in a batch that ends with "
                f"{max_delta}"
            )
        last_delta = delta

        if (byte := data[position]) < 0x80:
            size = zigzag[byte]
            position += 1
        else:
            size, position = decode(data, position)
        key = None
        if size >= 0:
            key = data[position : position + size]
            position += size

        if not whole:
            if position >= end:
                _refuse(f"a key of {size} bytes does not fit in a record that ends at byte {end}")
            # The sign of a zigzag varint is its lowest bit: a null value has a negative length.
            add_entry((delta, key, not data[position] & 1, time_delta, start, end))
            position = end
            continue

        if (byte := data[position]) < 0x80:
            size = zigzag[byte]
            position += 1
        elif (high := data[position + 1]) < 0x80:
            size = zigzag[byte + (high << 7) - 0x80]
            position += 2
        else:
            size, position = decode(data, position)
        value = None
        if size >= 0:
            value = data[position : position + size]
            position += size

        headers: Headers = ()
        if data[position]:
            headers, position = _headers(data, position, end)
        else:
            position += 1
        if position != end:
            _refuse(
                f"the fields of a record end at byte {position} of the batch, but its length says "
                f"{end}"
            )
        timestamp = base_timestamp + time_delta if append_time is None else append_time
        if not -_INT64 <= timestamp < _INT64:
            _refuse(f"the timestamp {timestamp} does not fit in 64 bits")
        add_row((base_offset + delta, timestamp, key, value, headers))
    if position != total:
        _refuse(f"{total - position} bytes are left after the {count} records")
    return rows if whole else entries


def _headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    """Decode a record's headers. Bytes of a key that are not UTF-8 are replaced, as in Kafka's
    clients."""
    count, position = decode(data, position)
    # The smallest header has two bytes.
    if not 0 <= count <= min((end - position) // 2, MAX_RECORD_HEADERS):
        _refuse(
            f"{end - position} bytes cannot hold {count} headers (at most {MAX_RECORD_HEADERS} "
            "are read)"
        )
    headers = []
    for _ in range(count):
        size, position = decode(data, position)
        if not 0 <= size <= end - position:
            _refuse(f"a header key of {size} bytes cannot be in the {end - position} that are left")
        key = data[position : position + size].decode(errors="replace")
        size, position = decode(data, position + size)
        value = None
        if size >= 0:
            if size > end - position:
                _refuse(
                    f"a header value of {size} bytes cannot be in the {end - position} that are "
                    "left"
                )
            value = data[position : position + size]
            position += size
        headers.append((key, value))
    return tuple(headers), position


def _refuse(message: str) -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_RECORD, message)
