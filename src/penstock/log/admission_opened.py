"""What a leader does to a client's batch whose topic asks for a look inside: keys are required, or
another codec. PURE.

The named exceptions to "record batches are opaque". A small batch is opened on the loop; a large
one in the child process, by `open_in_child`.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.config.topic import LogConfig
from penstock.ids import Buffer, TopicPartition
from penstock.limits import BATCH_HEADER_BYTES, MAX_INLINE_OPENED_BYTES, MAX_INLINE_OPENED_RECORDS
from penstock.records.batch import read_header, validate
from penstock.records.compression import Codec
from penstock.records.record import open_batch
from penstock.records.rewriting import RecordsRefused, recompressed
from penstock.world import Disk


class Opening(NamedTuple):
    """What is asked of the batches of a topic. No codec: they stay as their producers compressed
    them."""

    partition: TopicPartition
    needs_keys: bool
    codec: Codec | None
    level: int | None
    max_batch_bytes: int

    def is_small(self, batch: Buffer) -> bool:
        """Whether to open it takes less time than to send it elsewhere. What a compressed one
        unfolds to is not known before."""
        if not BATCH_HEADER_BYTES <= len(batch) <= MAX_INLINE_OPENED_BYTES:
            return len(batch) < BATCH_HEADER_BYTES  # no batch at all
        header = read_header(batch)
        return header.codec == Codec.NONE and header.record_count <= MAX_INLINE_OPENED_RECORDS

    def of(self, batch: Buffer) -> Buffer:
        """The batch as it is appended. KafkaError where it is not valid, RecordsRefused where
        records lack a key."""
        (header,) = validate(batch, max_batch_bytes=self.max_batch_bytes)
        if self.needs_keys:
            entries = open_batch(batch, header).entries
            missing = [number for number, entry in enumerate(entries) if entry[1] is None]
            if missing:
                raise RecordsRefused(
                    (
                        "Compacted topic cannot accept message without key in topic partition "
                        f"{self.partition}."
                    ),
                    missing,
                )
        if self.codec is None or header.codec == self.codec:
            return batch
        return recompressed(batch, self.codec, self.level)


def opening_of(config: LogConfig, partition: TopicPartition) -> Opening | None:
    """None for most topics: their batches stay closed."""
    if config.compression_type == "producer" and not config.compacts:
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
    """The batch as it is appended; None where that is as it came, which need not be sent back."""
    opened = opening.of(batch)
    return None if opened is batch else bytes(opened)
