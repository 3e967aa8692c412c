"""The Fetch request for partitions of one leader, and the record batches of its response. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.client.metadata import PartitionInfo, TopicInfo
from penstock.client.offsets import IsolationLevel
from penstock.ids import NO_UUID, Buffer, TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.records.batch import batches
from penstock.spark.source.ranges import OffsetRange

PartitionResponse = FetchResponse.Response.Partition

# From v13 on, requests identify topics by id only (KIP-516).
_LAST_VERSION_BY_NAME = 12


class Position(NamedTuple):
    """A fetch position, with what the request needs of the partition's metadata."""

    topic: TopicInfo
    info: PartitionInfo
    offset: int


class FetchLimits(NamedTuple):
    isolation: IsolationLevel
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


def fetch_request(
    positions: Mapping[TopicPartition, Position], limits: FetchLimits
) -> tuple[FetchRequest, int | None]:
    """Return the request, and the highest version in which it can be sent, if there is a limit."""
    topics: dict[tuple[str, UUID], list[FetchRequest.Topic.Partition]] = {}
    for partition, (topic, info, offset) in positions.items():
        topics.setdefault((topic.name, topic.id), []).append(
            FetchRequest.Topic.Partition(
                partition=partition.partition,
                current_leader_epoch=info.leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=limits.partition_max_bytes,
            )
        )
    request = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation,
        topics=tuple(
            FetchRequest.Topic(topic=name, topic_id=topic_id, partitions=tuple(fetched))
            for (name, topic_id), fetched in topics.items()
        ),
    )
    by_name = any(topic_id == NO_UUID for _name, topic_id in topics)
    return request, _LAST_VERSION_BY_NAME if by_name else None


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Record batches with the offsets from `position` to `next_position` (exclusive). The first
    may start earlier, and the last may be incomplete."""

    offset_range: OffsetRange
    records: Buffer
    aborted: tuple[tuple[int, int], ...]
    position: int
    next_position: int


def fetched_batches(
    offset_range: OffsetRange, position: int, response: PartitionResponse
) -> FetchedBatches | None:
    """Return None if the response has no complete batch after the position."""
    records = response.records
    if not isinstance(records, Buffer) or not len(records):
        return None
    next_position = max((header.next_offset for _at, header in batches(records)), default=position)
    if next_position <= position:
        return None
    aborted = tuple(
        (transaction.producer_id, transaction.first_offset)
        for transaction in response.aborted_transactions or ()
    )
    return FetchedBatches(offset_range, records, aborted, position, next_position)
