"""What a leader checks in batches before it appends them, and what it changes in them. PURE.

Most batches stay closed: only their headers are checked and patched. A compacted topic requires
keys, and a topic with its own compression.type requires that codec: these batches are opened, which
is the named exception to "record batches are opaque". A small batch is opened on the event loop, a
large one in the child process (`open_in_child`).
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_PRODUCER_ID, NO_TIMESTAMP, Buffer, TopicPartition
from penstock.limits import BATCH_HEADER_BYTES, MAX_INLINE_OPENED_BYTES, MAX_INLINE_OPENED_RECORDS
from penstock.log.producers.state import AppendedBatch, EndMarker, ProducerStates
from penstock.records.batch import (
    BatchHeader,
    patch,
    patch_log_append_time,
    read_header,
    validate,
)
from penstock.records.compression import Codec
from penstock.records.record import open_batch
from penstock.records.rewriting import RecordsRefused, recompressed
from penstock.world import Disk


def check_producers(
    producers: ProducerStates,
    headers: list[BatchHeader],
    markers: list[EndMarker | None],
    *,
    only_verified: bool = False,
    from_client: bool = True,
    from_the_first: bool = False,
) -> AppendedBatch | None:
    """Return the earlier append that a batch repeats; None if all batches are new. Raises
    KafkaError if one may not be appended. With only_verified, a transaction begins only after its
    verification. With from_the_first, a producer that is not known begins at sequence 0."""
    for header, marker in zip(headers, markers, strict=True):
        if marker is not None:
            producers.check_marker(
                header.producer_id, header.producer_epoch, marker.coordinator_epoch
            )
        elif header.producer_id > NO_PRODUCER_ID and not header.is_control:
            duplicate = producers.check(
                header,
                only_verified=only_verified,
                from_client=from_client,
                from_the_first=from_the_first,
            )
            if duplicate is not None:
                return duplicate
    return None


def check_timestamps(config: LogConfig, headers: list[BatchHeader], now_ms: int) -> None:
    """Check timestamps against the headers alone. The lower limit is checked for the first record
    of a batch only."""
    for header in headers:
        if header.max_timestamp == NO_TIMESTAMP:
            continue
        too_late = header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
        if too_late or now_ms - header.base_timestamp > config.message_timestamp_before_max_ms:
            time = header.max_timestamp if too_late else header.base_timestamp
            message = (
                f"timestamp {time} is further from the broker's time, {now_ms}, than "
                "message.timestamp.before/after.max.ms allow"
            )
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, message)


def with_offsets(
    records: Buffer,
    headers: list[BatchHeader],
    offset: int,
    leader_epoch: int,
    append_time_ms: int | None,
) -> tuple[memoryview, list[BatchHeader]]:
    """Return the batches with the offsets, the leader epoch and, if given, the append time of the
    leader; patched in place if the buffer is writable."""
    view = memoryview(records)
    if view.readonly:
        view = memoryview(bytearray(records))
    position, patched = 0, []
    for header in headers:
        patch(view, position, offset, leader_epoch)
        header = BatchHeader._make((offset, header.batch_length, leader_epoch, *header[3:]))
        patched.append(
            header
            if append_time_ms is None
            else patch_log_append_time(view, position, header, append_time_ms)
        )
        position += header.size
        offset = header.next_offset
    return view, patched


class Opening(NamedTuple):
    """What a topic's settings require of its batches. With no codec, batches keep their producer's
    compression."""

    partition: TopicPartition
    needs_keys: bool
    codec: Codec | None
    level: int | None
    max_batch_bytes: int

    def is_small(self, batch: Buffer) -> bool:
        """Return True if opening the batch takes less time than sending it to the child process.
        The size of a compressed batch is not known before it is decompressed."""
        if not BATCH_HEADER_BYTES <= len(batch) <= MAX_INLINE_OPENED_BYTES:
            return len(batch) < BATCH_HEADER_BYTES  # not a batch
        header = read_header(batch)
        return header.codec == Codec.NONE and header.record_count <= MAX_INLINE_OPENED_RECORDS

    def of(self, batch: Buffer) -> Buffer:
        """Return the batch to append. Raises KafkaError if it is invalid, RecordsRefused if records
        lack a key."""
        (header,) = validate(batch, max_batch_bytes=self.max_batch_bytes)
        if self.needs_keys:
            entries = open_batch(batch, header).entries
            missing = [number for number, entry in enumerate(entries) if entry[1] is None]
            if missing:
                reason = (
                    "Compacted topic cannot accept message without key in topic partition "
                    f"{self.partition}."
                )
                raise RecordsRefused(reason, missing)
        if self.codec is None or header.codec == self.codec:
            return batch
        return recompressed(batch, self.codec, self.level)


def opening_of(config: LogConfig, partition: TopicPartition) -> Opening | None:
    """Return None for most topics: their batches are not opened."""
    if not config.opens_batches:
        return None
    codec, level = _codec(config)
    return Opening(partition, config.compacts, codec, level, config.max_message_bytes)


def _codec(config: LogConfig) -> tuple[Codec | None, int | None]:
    match config.compression_type:
        case "producer":
            return None, None
        case "gzip":
            return Codec.GZIP, config.compression_gzip_level
        case "lz4":
            return Codec.LZ4, config.compression_lz4_level
        case "zstd":
            return Codec.ZSTD, config.compression_zstd_level
        case "snappy":
            return Codec.SNAPPY, None
        case _:
            return Codec.NONE, None


def open_in_child(_disk: Disk, opening: Opening, batch: bytes) -> bytes | None:
    """Return the batch to append; None if it is unchanged, so that it need not be sent back."""
    opened = opening.of(batch)
    return None if opened is batch else bytes(opened)
