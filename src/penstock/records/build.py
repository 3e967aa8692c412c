"""Building batches: from records to the bytes that a producer sends, and transaction markers.

Does not know where a batch is sent. Offsets begin at 0 unless given: a leader patches them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from penstock.ids import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from penstock.records.batch import (
    CONTROL_BIT,
    HEADER,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    crc_of,
    write_crc,
)
from penstock.records.compression import Codec, compress
from penstock.records.record import ControlRecord, Headers
from penstock.records.varint import encode

_NULL = encode(-1)
_NO_HEADERS = encode(0)
_CONTROL_VERSION = 0


class NewRecord(NamedTuple):
    """A record to write. A plain tuple of the four fields is accepted too."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = NO_TIMESTAMP


def build_batch(
    records: Iterable[tuple[bytes | None, bytes | None, Headers, int]],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    append_time_ms: int | None = None,
) -> bytes:
    """Return one batch of all records, with consecutive offsets. With `append_time_ms` its
    timestamps are LogAppendTime."""
    payload, count, base_timestamp, max_timestamp = _encode_records(records)
    attributes = codec | TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = append_time_ms
    if codec is not Codec.NONE:
        payload = compress(codec, payload, level)
    header = HEADER.pack(
        base_offset,
        HEADER.size - LENGTH_OVERHEAD + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch = bytearray(header)
    batch += payload
    write_crc(batch, 0, crc_of(batch, 0, len(batch)))
    return bytes(batch)


def control_key(kind: ControlRecord) -> bytes:
    return struct.pack(">hh", _CONTROL_VERSION, kind)


def end_transaction_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Return the control batch by which a transaction coordinator commits or aborts a producer's
    transaction in a partition."""
    value = struct.pack(">hi", _CONTROL_VERSION, coordinator_epoch)
    return build_batch(
        [
            (
                control_key(ControlRecord.COMMIT if commit else ControlRecord.ABORT),
                value,
                (),
                timestamp,
            )
        ],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def _encode_records(
    records: Iterable[tuple[bytes | None, bytes | None, Headers, int]],
) -> tuple[bytes, int, int, int]:
    """Return the bytes of the records, their count, and the first and the largest timestamp."""
    parts: list[bytes] = []
    base_timestamp = max_timestamp = NO_TIMESTAMP
    count = 0
    for key, value, headers, timestamp in records:
        if count == 0:
            base_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        body = b"".join(
            (
                b"\0",  # attributes, of which none is in use
                encode(timestamp - base_timestamp),
                encode(count),
                _NULL if key is None else encode(len(key)) + key,
                _NULL if value is None else encode(len(value)) + value,
                _encode_headers(headers) if headers else _NO_HEADERS,
            )
        )
        parts.append(encode(len(body)))
        parts.append(body)
        count += 1
    if count == 0:
        raise ValueError("a batch needs at least one record")
    return b"".join(parts), count, base_timestamp, max_timestamp


def _encode_headers(headers: Headers) -> bytes:
    parts = [encode(len(headers))]
    for name, value in headers:
        key = name.encode()
        parts += (encode(len(key)), key, _NULL if value is None else encode(len(value)) + value)
    return b"".join(parts)
