"""Makes the rows that travel in commit messages part of the driver's transaction.

A Produce request has at most one batch of a partition, and the next one waits for its result. The
batches of a partition are therefore merged, so that a small micro-batch is written in one round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.ids import NO_LEADER_EPOCH, TopicPartition
from penstock.records.batch import patch, read_header, with_producer
from penstock.records.compression import Codec
from penstock.spark.kernel.columns import Encoded, decode, encode
from penstock.spark.sink.rows import EncodedRows

_SEQUENCES = 2**31


def transactional_batches(
    rows: Iterable[EncodedRows], producer: ProducerIdAndEpoch, codec: Codec, max_bytes: int
) -> Iterator[tuple[TopicPartition, bytes]]:
    """Yield the batches to send, in order for each partition."""
    by_partition: dict[TopicPartition, list[EncodedRows]] = {}
    for encoded in rows:
        by_partition.setdefault(encoded.partition, []).append(encoded)
    for partition, batches in by_partition.items():
        sequence = 0
        for batch, records in _merged(partition, batches, codec, max_bytes):
            yield partition, with_producer(batch, *producer, sequence)
            sequence = (sequence + records) % _SEQUENCES


def _merged(
    partition: TopicPartition, batches: Sequence[EncodedRows], codec: Codec, max_bytes: int
) -> Iterator[Encoded]:
    if len(batches) == 1:
        yield Encoded(batches[0].batch, batches[0].records)
        return
    buffer, end, timestamp_ms = bytearray(), 0, 0
    for rows in batches:
        position = len(buffer)
        buffer += rows.batch
        patch(buffer, position, end, NO_LEADER_EPOCH)
        end += rows.records
        timestamp_ms = max(timestamp_ms, read_header(rows.batch).max_timestamp)
    position, topic, index = 0, *partition
    while position < end:
        decoded = decode(
            buffer, start=position, end=end, headers=True, topic=topic, partition=index
        )
        position = decoded.next_offset
        if decoded.batch is not None:
            yield from encode(
                decoded.batch, max_bytes=max_bytes, timestamp_ms=timestamp_ms, codec=codec
            )
