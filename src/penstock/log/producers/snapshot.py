"""The .snapshot file: producer state at an offset, in Kafka's format (version 1, with a CRC-32C).

As in Kafka, it has only the last batch of each producer.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

from crc32c import crc32c

from penstock.log.producers.state import REMEMBERED_BATCHES, AppendedBatch, Producer

VERSION = 1
# version, crc, number of producers; the crc covers what follows it.
_HEAD = struct.Struct(">hIi")
_CRC_COVERS_FROM = 6
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first
# offset of the open transaction
_ENTRY = struct.Struct(">qhiqiqiq")
_SEQUENCES = 2**31


class SnapshotDamaged(ValueError):
    """The bytes of a snapshot are not what was written."""


def encode_snapshot(producers: dict[int, Producer]) -> bytes:
    body = bytearray(_HEAD.pack(VERSION, 0, len(producers)))
    for producer_id, producer in sorted(producers.items()):
        last = (
            producer.batches[-1]
            if producer.batches
            else AppendedBatch(-1, -1, -1, -1, producer.last_timestamp)
        )
        txn = -1 if producer.txn_first_offset is None else producer.txn_first_offset
        delta = last.last_offset - last.first_offset
        body += _ENTRY.pack(
            producer_id,
            producer.epoch,
            last.last_sequence,
            last.last_offset,
            delta,
            producer.last_timestamp,
            producer.coordinator_epoch,
            txn,
        )
    struct.pack_into(">I", body, 2, crc32c(memoryview(body)[_CRC_COVERS_FROM:]))
    return bytes(body)


def decode_snapshot(data: bytes) -> Iterator[tuple[int, Producer]]:
    """Return an iterator over the producers. Raises SnapshotDamaged before the first."""
    if len(data) < _HEAD.size:
        raise SnapshotDamaged(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise SnapshotDamaged(f"unknown producer snapshot version {version}")
    if crc != crc32c(memoryview(data)[_CRC_COVERS_FROM:]):
        raise SnapshotDamaged("the checksum does not match")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise SnapshotDamaged(f"{count} producers announced in {len(data)} bytes")
    return (_producer(*entry) for entry in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]))


def _producer(
    producer_id: int,
    epoch: int,
    sequence: int,
    offset: int,
    delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn: int,
) -> tuple[int, Producer]:
    batches: deque[AppendedBatch] = deque(maxlen=REMEMBERED_BATCHES)
    if sequence >= 0:
        batches.append(
            AppendedBatch(
                (sequence - delta) % _SEQUENCES, sequence, offset - delta, offset, timestamp
            )
        )
    return producer_id, Producer(
        epoch, batches, coordinator_epoch, None if txn < 0 else txn, timestamp
    )
