"""A record batch as a broker sees it: the fixed header, the checks before an append, and the fields
that a broker writes.

Owns the 61 bytes of the header of format v2 (KIP-98) and the CRC-32C in it. Knows nothing of what
follows the header: a broker appends and serves batches without reading records. Formats v0 and v1
are refused, as in Kafka 4 (KIP-724).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, SupportsIndex

from crc32c import crc32c

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, Buffer
from penstock.limits import BATCH_HEADER_BYTES, MIN_RECORD_BYTES

HEADER = struct.Struct(">qiibIhiqqqhii")
MAGIC = 2
# The length field counts the bytes after it; base offset and length are 12 bytes.
LENGTH_OVERHEAD = 12

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_HIGHEST_CODEC = 4
_MAX_OFFSET = 2**63 - 1
_SEQUENCES = 2**31

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC = struct.Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = struct.Struct(">h")
_CRC_COVERS_FROM = 21
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_PRODUCER = struct.Struct(">qh")
_PRODUCER_AT = 43
_BASE_SEQUENCE = struct.Struct(">i")
_BASE_SEQUENCE_AT = 53


class CorruptBatch(KafkaError):
    """Bytes that are not a valid batch."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)

    # KafkaError is pickled as (code, message), but this class takes the message only.
    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[type[CorruptBatch], tuple[str]]:
        return type(self), (self.message,)


class BatchHeader(NamedTuple):
    """The header of a batch. The fields have Kafka's names; properties are derived from them."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LENGTH_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """True if the base timestamp is the delete horizon: when tombstones and markers of this
        batch may be removed (KIP-534)."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The last sequence; -1 without a base sequence. Sequences are int32: 0 follows 2**31 -
        1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    def timestamp_at(self, offset: int) -> int:
        """Return about the timestamp of the first record at or after an offset, from the first and
        the largest timestamp of the batch; -1 if the batch has no timestamps."""
        if self.max_timestamp == NO_TIMESTAMP or self.log_append_time or self.has_delete_horizon:
            return self.max_timestamp
        within = min(max(offset - self.base_offset, 0), self.last_offset_delta)
        duration = self.max_timestamp - self.base_timestamp
        return self.base_timestamp + duration * within // max(self.last_offset_delta, 1)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at a position; only its length is checked."""
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, position))
    except struct.error:
        left = max(len(buffer) - position, 0)
        raise CorruptBatch(
            f"a batch header needs {BATCH_HEADER_BYTES} bytes, but {left} are left at position "
            f"{position}"
        ) from None


def producer_of(buffer: Buffer) -> tuple[int, int]:
    """Return the producer id and epoch of the batch at the start of a buffer, which has a whole
    header."""
    producer_id, epoch = _PRODUCER.unpack_from(buffer, _PRODUCER_AT)
    return producer_id, epoch


def batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every whole batch. Stops at an incomplete last one: a fetch
    response may end with one.

    Raises CorruptBatch for a length that no batch can have; nothing else is checked.
    """
    end = len(buffer)
    while position + BATCH_HEADER_BYTES <= end:
        header = read_header(buffer, position)
        size = header.size
        if size < BATCH_HEADER_BYTES:
            raise _too_short(position, size)
        if position + size > end:
            return
        yield position, header
        position += size


def crc_of(buffer: Buffer, position: int, size: int) -> int:
    """Return the CRC-32C from the attributes to the end of a batch of this size."""
    return crc32c(memoryview(buffer)[position + _CRC_COVERS_FROM : position + size])


def write_crc(buffer: Buffer, position: int, crc: int) -> None:
    _CRC.pack_into(buffer, position + _CRC_AT, crc)


def crc_matches(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    return crc_of(buffer, position, header.size) == header.crc


def patch(buffer: Buffer, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and the leader epoch. The CRC does not cover these fields."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def with_producer(batch: Buffer, producer_id: int, epoch: int, base_sequence: int) -> bytes:
    """Return one batch as part of the producer's transaction, with a matching CRC."""
    patched = bytearray(batch)
    attributes = _ATTRIBUTES.unpack_from(patched, _CRC_COVERS_FROM)[0] | TRANSACTIONAL_BIT
    _ATTRIBUTES.pack_into(patched, _CRC_COVERS_FROM, attributes)
    _PRODUCER.pack_into(patched, _PRODUCER_AT, producer_id, epoch)
    _BASE_SEQUENCE.pack_into(patched, _BASE_SEQUENCE_AT, base_sequence)
    write_crc(patched, 0, crc_of(patched, 0, len(patched)))
    return bytes(patched)


def patch_log_append_time(
    buffer: Buffer, position: int, header: BatchHeader, now_ms: int
) -> BatchHeader:
    """Set the time of every record to the append time, and return the new header. The base
    timestamp stays, as in Kafka: readers use the maximum only."""
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(buffer, position + _CRC_COVERS_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, now_ms)
    crc = crc_of(buffer, position, header.size)
    write_crc(buffer, position, crc)
    return header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc)


def validate(
    records: Buffer, *, max_batch_bytes: int, from_client: bool = True
) -> list[BatchHeader]:
    """Return the headers of all batches that a producer or a leader sent. Raises KafkaError with
    Kafka's code if one may not be appended.

    A producer sends exactly one batch that begins at offset 0, without gaps and control records. A
    leader sends the batches of its log in the order of their offsets, with markers, and with gaps
    that compaction made.
    """
    headers: list[BatchHeader] = []
    position, end = 0, len(records)
    while position < end:
        header = _framed(records, position, end, from_client)
        size = header.size
        _check_bytes(records, position, size, header, max_batch_bytes)
        headers.append(header)
        position += size
    if from_client:
        if len(headers) != 1:
            raise _invalid(
                "a produce request must have exactly one record batch per partition, not "
                f"{len(headers)}"
            )
        _check_from_client(headers[0])
    else:
        _check_replicated(headers)
    return headers


def _framed(buffer: Buffer, position: int, end: int, from_client: bool) -> BatchHeader:
    """Return the header of a whole batch of format v2 that ends within the buffer."""
    left = end - position
    if left >= BATCH_HEADER_BYTES:
        header = read_header(buffer, position)
        if (
            header.magic == MAGIC
            and BATCH_HEADER_BYTES <= LENGTH_OVERHEAD + header.batch_length <= left
        ):
            return header
    raise _frame_error(buffer, position, left, from_client)


def _frame_error(buffer: Buffer, position: int, left: int, from_client: bool) -> KafkaError:
    """Return the error for bytes that are not a whole batch. The magic is checked before the sizes:
    a batch of an old format may be short, and gets the error for its format."""
    # Kafka ignores a cut batch, and then reports that a produce request has no batch.
    incomplete = _invalid if from_client and position == 0 else CorruptBatch
    if left <= _MAGIC_AT:
        return incomplete(f"{left} bytes at position {position} are too few for a record batch")
    magic = buffer[position + _MAGIC_AT]
    if magic < MAGIC:
        return _invalid(
            f"the batch at position {position} has message format v{magic}, but only v2 is "
            "supported: use a client of version 0.11 or later"
        )
    if magic > MAGIC:
        return CorruptBatch(f"the batch at position {position} has the unknown magic {magic}")
    size = LENGTH_OVERHEAD + _LENGTH.unpack_from(buffer, position + _LENGTH_AT)[0]
    if size < BATCH_HEADER_BYTES:
        return _too_short(position, size)
    return incomplete(f"the batch at position {position} claims {size} bytes, but {left} are left")


def _check_bytes(
    buffer: Buffer, position: int, size: int, header: BatchHeader, max_batch_bytes: int
) -> None:
    if size > max_batch_bytes:
        message = (
            f"a record batch of {size} bytes is larger than the {max_batch_bytes} allowed "
            "by max.message.bytes"
        )
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
    crc = crc_of(buffer, position, size)
    if crc != header.crc:
        raise CorruptBatch(
            f"the batch at position {position} has CRC {header.crc:#010x}, but its bytes give "
            f"{crc:#010x}"
        )
    if header.attributes & CODEC_MASK > _HIGHEST_CODEC:
        # Kafka's error; it uses UNSUPPORTED_COMPRESSION_TYPE for a codec that the request's version
        # may not use.
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the batch at position {position} has the unknown codec {header.codec}",
        )


def _check_from_client(header: BatchHeader) -> None:
    """Check a client's batch in the order of Kafka's checks (UnifiedLog, then LogValidator)."""
    count, last_offset_delta, attributes = (
        header.record_count,
        header.last_offset_delta,
        header.attributes,
    )
    if header.base_offset != 0:
        raise _invalid(
            f"the base offset of a produced batch must be 0, but it is {header.base_offset}"
        )
    if last_offset_delta < 0:
        raise _invalid(f"the last offset delta of a batch cannot be {last_offset_delta}")
    if count <= 0:
        raise _invalid(f"a produced batch cannot hold {count} records")
    if count != last_offset_delta + 1:
        raise _invalid(f"a batch of {count} records cannot end at offset delta {last_offset_delta}")
    if count > _most_records(header):
        raise _invalid(f"{header.size - BATCH_HEADER_BYTES} bytes cannot hold {count} records")
    if attributes & CONTROL_BIT:
        raise _invalid("clients are not allowed to write control records")
    if attributes & LOG_APPEND_TIME_BIT:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            "a producer may not set the timestamp type to LogAppendTime: the broker does",
        )
    _check_producer(header)


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id > NO_PRODUCER_ID:
        if header.producer_epoch < 0:
            raise _invalid(
                f"producer {header.producer_id} cannot have the epoch {header.producer_epoch}"
            )
        if header.base_sequence < 0:
            raise _invalid(
                f"producer {header.producer_id} cannot have the sequence number "
                f"{header.base_sequence}"
            )
    elif header.attributes & TRANSACTIONAL_BIT:
        raise _invalid("a transactional batch needs a producer id")


def _check_replicated(headers: list[BatchHeader]) -> None:
    next_offset = 0
    for header in headers:
        if header.base_offset < next_offset:
            raise CorruptBatch(
                f"a batch with base offset {header.base_offset} cannot follow offset "
                f"{next_offset - 1}"
            )
        if header.last_offset_delta < 0 or header.last_offset > _MAX_OFFSET:
            raise CorruptBatch(
                f"the last offset delta of a batch at {header.base_offset} cannot be "
                f"{header.last_offset_delta}"
            )
        if not 0 <= header.record_count <= min(header.last_offset_delta + 1, _most_records(header)):
            raise CorruptBatch(
                f"the batch at {header.base_offset} cannot hold {header.record_count} records"
            )
        next_offset = header.next_offset


def _most_records(header: BatchHeader) -> int:
    """Return how many records the bytes can hold. For a compressed batch only a reader knows."""
    payload = LENGTH_OVERHEAD + header.batch_length - BATCH_HEADER_BYTES
    if header.attributes & CODEC_MASK == 0:
        return payload // MIN_RECORD_BYTES
    return _MAX_OFFSET if payload else 0


def _too_short(position: int, size: int) -> CorruptBatch:
    return CorruptBatch(
        f"the batch at position {position} claims {size} bytes, less than its header of "
        f"{BATCH_HEADER_BYTES}"
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
