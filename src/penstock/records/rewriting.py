"""Rewriting batches: without some of their records, without records, or in another codec.

For compaction, which copies most records unchanged, and for topics with their own compression.type.
Does not know which records stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_TIMESTAMP, Buffer
from penstock.limits import BATCH_HEADER_BYTES
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
from penstock.records.record import Entry, Opened
from penstock.records.varint import decode, encode


class RecordsRefused(KafkaError):
    """A batch is refused because of some of its records: their indexes in the batch, and why."""

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

    # KafkaError is pickled as (code, message), but this class takes other arguments.
    def __reduce_ex__(
        self, protocol: SupportsIndex
    ) -> tuple[type[RecordsRefused], tuple[str, tuple[int, ...]]]:
        return type(self), (self.reason, self.numbers)


def keep_entries(
    header: BatchHeader, opened: Opened, kept: list[Entry], delete_horizon_ms: int | None = None
) -> bytes:
    """Return the batch with these records only, at least one. Offsets, sequences, timestamps and
    the last offset stay. With a delete horizon, which replaces the base timestamp (KIP-534), all
    time deltas are encoded again."""
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
    """Return a record whose time delta is larger by `shift`."""
    _delta, _key, _has_value, time_delta, start, end = entry
    _length, body = decode(data, start)
    _old, rest = decode(data, body + 1)
    changed = data[body : body + 1] + encode(time_delta + shift) + data[rest:end]
    return encode(len(changed)) + changed


def emptied(header: BatchHeader) -> bytes:
    """Return the header alone, as Kafka keeps it for the offsets and the producer's sequence of a
    batch."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return with_payload(
        header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b""
    )


def with_payload(header: BatchHeader, payload: bytes) -> bytes:
    """Return a batch of a header and (compressed) records, with matching length and CRC."""
    header = header._replace(batch_length=HEADER.size - LENGTH_OVERHEAD + len(payload))
    batch = bytearray(HEADER.pack(*header))
    batch += payload
    write_crc(batch, 0, crc_of(batch, 0, len(batch)))
    return bytes(batch)


def recompressed(batch: Buffer, codec: Codec, level: int | None) -> bytes:
    """Return a valid batch in another codec, with the same record bytes."""
    header = read_header(batch)
    with memoryview(batch) as view, view[BATCH_HEADER_BYTES : header.size] as payload:
        data = decompress(Codec(header.codec), payload)
    return with_payload(
        header._replace(attributes=header.attributes & ~CODEC_MASK | codec),
        compress(codec, data, level),
    )
