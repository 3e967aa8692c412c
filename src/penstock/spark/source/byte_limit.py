"""The option maxBytesPerTrigger, an estimate of how many offsets have that many bytes.

Brokers do not report the bytes between two offsets. A Fetch of a few kilobytes at the start of a
batch shows the headers of the record batches there, and each header has its size and its offsets.
The estimate assumes that the following record batches have as many bytes per offset. Bytes are
those of the record batches in the log, compressed where the producer compressed them.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.client import Client
from penstock.client.connection import Connection
from penstock.client.errors import check, error_of
from penstock.client.offsets import IsolationLevel
from penstock.client.routing import PartitionResults, send_to_leaders
from penstock.errors import KafkaError
from penstock.ids import Buffer, TopicPartition
from penstock.limits import BATCH_HEADER_BYTES, MAX_FETCH_BYTES
from penstock.protocol.messages.fetch import FetchResponse
from penstock.records.batch import read_header
from penstock.spark.source.fetch_messages import FetchLimits, Position, fetch_request

# Bytes to fetch of each partition: enough for the headers of several small record batches, less if
# there are thousands of partitions. A broker returns the first batch of a response whole, whatever
# its size, and cuts the others.
_SAMPLE_BYTES = 4096
_MIN_SAMPLE_BYTES = 256
_SAMPLES_BYTES = 4 * 1024 * 1024


async def bytes_per_offset(
    client: Client, positions: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> dict[TopicPartition, float]:
    """Return the bytes per offset from each position on, without partitions that have no records
    there."""

    async def send(
        connection: Connection, partitions: list[TopicPartition]
    ) -> PartitionResults[float | None]:
        sampled = {}
        for partition in partitions:
            topic, info = await client.cluster.leader(partition)
            sampled[partition] = Position(topic, info, positions[partition])
        share = _SAMPLES_BYTES // len(partitions)
        limits = FetchLimits(
            isolation=isolation,
            max_wait_ms=0,
            min_bytes=0,
            # The whole first batch must leave room for the others.
            max_bytes=MAX_FETCH_BYTES,
            partition_max_bytes=min(max(share, _MIN_SAMPLE_BYTES), _SAMPLE_BYTES),
        )
        request, max_version = fetch_request(sampled, limits)
        response = await connection.call(request, FetchResponse, max_version=max_version)
        check(response.error_code, "the broker refused the fetch")
        results: dict[TopicPartition, float | KafkaError | None] = dict.fromkeys(partitions)
        for topic_response in response.responses:
            metadata = client.cluster.metadata
            name = metadata.name_of(topic_response.topic_id, topic_response.topic)
            for data in topic_response.partitions:
                partition = TopicPartition(name, data.partition_index)
                results[partition] = (
                    error_of(data.error_code, f"{partition} cannot be read")
                    if data.error_code
                    else sample_bytes_per_offset(data.records)
                )
        return results

    sizes = await send_to_leaders(client.cluster, positions, send)
    return {partition: size for partition, size in sizes.items() if size is not None}


def sample_bytes_per_offset(records: object) -> float | None:
    """Return the bytes per offset of the record batches at the start of a Fetch response, the last
    of which may be incomplete. None if there is no header."""
    if not isinstance(records, Buffer) or len(records) < BATCH_HEADER_BYTES:
        return None
    at, size = 0, 0
    first, following = None, 0
    while at + BATCH_HEADER_BYTES <= len(records):
        header = read_header(records, at)
        if header.size < BATCH_HEADER_BYTES or header.next_offset <= max(following, 0):
            break
        first = header.base_offset if first is None else first
        following = header.next_offset
        size += header.size
        at += header.size
    return None if first is None or following <= first else size / (following - first)


def byte_limited(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    sizes: Mapping[TopicPartition, float],
    max_bytes: int,
) -> dict[TopicPartition, int]:
    """Return end offsets before which there are about `max_bytes` in all: from each partition in
    proportion to the bytes of its backlog, and at least one offset.

    Partitions without a size get the mean of the others.
    """
    backlog = {partition: max(last - start[partition], 0) for partition, last in end.items()}
    known = [
        sizes[partition] for partition, count in backlog.items() if count and partition in sizes
    ]
    # Without any sample a batch has as little as possible.
    mean = sum(known) / len(known) if known else float(max_bytes)
    total = sum(count * sizes.get(partition, mean) for partition, count in backlog.items())
    if total <= max_bytes:
        return dict(end)
    share = max_bytes / total
    return {
        partition: start[partition] + (max(int(count * share), 1) if count else 0)
        for partition, count in backlog.items()
    }
