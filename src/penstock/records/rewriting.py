"""A batch opened without building its records: their keys, where their bytes lie, and the batch
again with some of them left out.

For compaction, which looks at every record of a log and copies most of those that stay as they are.
Must never know which ones stay.
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
