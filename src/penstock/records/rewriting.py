"""A batch opened without building its records: their keys, where their bytes lie, and the batch
again with some of them left out.

For compaction, which looks at every record of a log and copies most of those that stay as they are.
Must never know which ones stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, SupportsIndex

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_TIMESTAMP, Buffer
from penstock.limits import BATCH_HEADER_BYTES, MAX_DECOMPRESSED_BYTES, MIN_RECORD_BYTES
from penstock.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER,
    LENGTH_OVERHEAD,
    BatchHeader,
    crc_of,
    read_header,
    write_crc,
)
from penstock.records.compression import Codec, compress, decompress
from penstock.records.varint import ZIGZAG, decode, encode

# Offset delta, key, whether it has a value, time delta, and where it begins and ends, its length
# included. A plain tuple: there are millions.
Entry = tuple[int, bytes | None, bool, int, int, int]


class RecordsRefused(KafkaError):
    """A batch of which some records cannot be taken, and therefore none: which, by their number in
    it, and why."""

    def __init__(self, reason: str, numbers: Sequence[int]) -> None:
        shown = ", ".join(
            f"RecordError(batchIndex={number}, message='{reason}')" for number in numbers[:3]
        )
        message = (
            f"One or more records have been rejected due to {len(numbers)} record errors in "
            "total, and only showing the first three"
        )
        super().__init__(ErrorCode.INVALID_RECORD, f"{message} errors at most: [{shown}]")
        self.reason = reason
        self.numbers = tuple(numbers)

    # KafkaError is pickled as (code, message), which this class does not take.
    def __reduce_ex__(
        self, protocol: SupportsIndex
    ) -> tuple[type[RecordsRefused], tuple[str, tuple[int, ...]]]:
        return type(self), (self.reason, self.numbers)


class Opened(NamedTuple):
    """The decompressed records of a batch, and what compaction asks of each."""

    data: bytes
    entries: list[Entry]


def open_batch(
    batch: Buffer, header: BatchHeader, *, limit: int = MAX_DECOMPRESSED_BYTES
) -> Opened:
    """KafkaError where the records are not what the header says."""
    count = header.record_count
    if count == 0:
        return Opened(b"", [])
    if header.codec > Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch at {header.base_offset} has the unknown codec {header.codec}",
        )
    with memoryview(batch) as view, view[BATCH_HEADER_BYTES : header.size] as payload:
        data = decompress(Codec(header.codec), payload, limit)
    try:
        if not 0 < count <= len(data) // MIN_RECORD_BYTES:
            raise ValueError(f"{len(data)} bytes cannot hold {count} records")
        return Opened(data, _entries(data, header, count))
    except (IndexError, ValueError) as error:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the records of the batch at {header.base_offset} are damaged: {error}",
        ) from error


def _entries(data: bytes, header: BatchHeader, count: int) -> list[Entry]:
    """The loop over all records: a varint of one byte is decoded in place, since a call for each
    would double the time."""
    entries: list[Entry] = []
    add, zigzag = entries.append, ZIGZAG
    last_delta, most_delta = -1, header.last_offset_delta
    position, total = 0, len(data)
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
        if length < MIN_RECORD_BYTES - 1 or end > total:
            raise ValueError(f"a record claims {length} bytes, but {total - position} are left")
        position += 1  # attributes, of which none is in use
        if (byte := data[position]) < 0x80:
            time_delta = zigzag[byte]
            position += 1
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
        if not last_delta < delta <= most_delta:
            raise ValueError(
                f"offset delta {delta} cannot follow {last_delta} in a batch that ends with "
                f"{most_delta}"
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
        if position >= end:
            raise ValueError(
                f"a key of {size} bytes does not fit in a record that ends at byte {end}"
            )
        # The sign of a zigzag varint is in its lowest bit: a value is null where its length is
        # negative.
        add((delta, key, not data[position] & 1, time_delta, start, end))
        position = end
    if position != total:
        raise ValueError(f"{total - position} bytes are left after the {count} records")
    return entries


def keep_entries(
    header: BatchHeader, opened: Opened, kept: list[Entry], delete_horizon_ms: int | None = None
) -> bytes:
    """The batch with these records alone, at least one. Offsets, sequences and times are as before,
    and so is the last offset. With a delete horizon, which takes the place of the base timestamp
    (KIP-534), all time deltas are written anew."""
    base_timestamp, attributes, data = header.base_timestamp, header.attributes, opened.data
    if delete_horizon_ms is None:
        payload = b"".join([data[entry[4] : entry[5]] for entry in kept])
    else:
        payload = b"".join(
            [_with_time(data, entry, base_timestamp - delete_horizon_ms) for entry in kept]
        )
        attributes |= DELETE_HORIZON_BIT
    max_timestamp = (
        header.max_timestamp
        if header.log_append_time
        else base_timestamp + max(entry[3] for entry in kept)
    )
    codec = Codec(attributes & CODEC_MASK)
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp if delete_horizon_ms is None else delete_horizon_ms,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    return with_payload(changed, compress(codec, payload))


def _with_time(data: bytes, entry: Entry, shift: int) -> bytes:
    """A record whose time delta is larger by `shift`."""
    _delta, _key, _has_value, time_delta, start, end = entry
    _length, body = decode(data, start)
    _old, rest = decode(data, body + 1)
    changed = data[body : body + 1] + encode(time_delta + shift) + data[rest:end]
    return encode(len(changed)) + changed


def emptied(header: BatchHeader) -> bytes:
    """The header alone, as Kafka leaves it of a batch that is kept for its offsets and its
    producer's sequence."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return with_payload(
        header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b""
    )


def with_payload(header: BatchHeader, payload: bytes) -> bytes:
    """A batch of a header and (compressed) records: length and CRC are made to fit."""
    header = header._replace(batch_length=HEADER.size - LENGTH_OVERHEAD + len(payload))
    batch = bytearray(HEADER.pack(*header))
    batch += payload
    write_crc(batch, 0, crc_of(batch, 0, len(batch)))
    return bytes(batch)


def recompressed(batch: Buffer, codec: Codec, level: int | None) -> bytes:
    """A valid batch in another codec, its records' bytes unchanged."""
    header = read_header(batch)
    with memoryview(batch) as view, view[BATCH_HEADER_BYTES : header.size] as payload:
        data = decompress(Codec(header.codec), payload)
    return with_payload(
        header._replace(attributes=header.attributes & ~CODEC_MASK | codec),
        compress(codec, data, level),
    )
