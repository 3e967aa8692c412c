"""ListOffsets and DeleteRecords requests to partition leaders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.errors import error_of
from penstock.client.routing import PartitionResults, by_topic, send_to_leaders
from penstock.ids import TopicPartition
from penstock.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

# DeleteRecords: delete up to the high watermark.
HIGH_WATERMARK = -1


class IsolationLevel(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """An offset of -1 means that no record has the requested timestamp or a later one."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    times: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Return each partition's first offset at or after a timestamp in milliseconds.

    EARLIEST, LATEST and MAX_TIMESTAMP are valid timestamps too.
    """

    async def send(
        connection: Connection, partitions: list[TopicPartition]
    ) -> PartitionResults[OffsetAndTimestamp]:
        part = ListOffsetsRequest.Topic.Partition
        topics = tuple(
            ListOffsetsRequest.Topic(
                name=topic,
                partitions=tuple(
                    part(partition_index=index, timestamp=times[TopicPartition(topic, index)])
                    for index in indexes
                ),
            )
            for topic, indexes in by_topic(partitions).items()
        )
        timeout_ms = int(cluster.request_timeout_s * 1000)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=timeout_ms
        )
        response = await connection.call(request, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, partition.partition_index): OffsetAndTimestamp(
                partition.offset, partition.timestamp, partition.leader_epoch
            )
            if partition.error_code == 0
            else error_of(
                partition.error_code,
                f"ListOffsets failed for {topic.name}-{partition.partition_index}",
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    return await send_to_leaders(cluster, times, send)


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete the records before these offsets; return each partition's new log start offset."""

    async def send(
        connection: Connection, partitions: list[TopicPartition]
    ) -> PartitionResults[int]:
        part = DeleteRecordsRequest.Topic.Partition
        topics = tuple(
            DeleteRecordsRequest.Topic(
                name=topic,
                partitions=tuple(
                    part(partition_index=index, offset=before[TopicPartition(topic, index)])
                    for index in indexes
                ),
            )
            for topic, indexes in by_topic(partitions).items()
        )
        request = DeleteRecordsRequest(
            topics=topics, timeout_ms=int(cluster.request_timeout_s * 1000)
        )
        response = await connection.call(request, DeleteRecordsResponse)
        return {
            TopicPartition(topic.name, partition.partition_index): partition.low_watermark
            if partition.error_code == 0
            else error_of(
                partition.error_code,
                f"DeleteRecords failed for {topic.name}-{partition.partition_index}",
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    return await send_to_leaders(cluster, before, send)
