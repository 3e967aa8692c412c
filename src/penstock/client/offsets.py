"""Offsets of partitions, as their leaders know them: found by time, and the log's start moved
forward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.faults import error_of
from penstock.client.leaders import Outcomes, ask_leaders, by_topic
from penstock.ids import TopicPartition
from penstock.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

# DeleteRecords: everything below the high watermark.
HIGH_WATERMARK = -1


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset of -1 is none: no record is as young as the time that was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    times: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, FoundOffset]:
    """The first offset at or after a time in milliseconds, or at EARLIEST, LATEST or
    MAX_TIMESTAMP."""

    async def ask(
        connection: Connection, partitions: list[TopicPartition]
    ) -> Outcomes[FoundOffset]:
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
        answer = await connection.call(request, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, one.partition_index): FoundOffset(
                one.offset, one.timestamp, one.leader_epoch
            )
            if one.error_code == 0
            else error_of(
                one.error_code,
                f"the offsets of {topic.name}-{one.partition_index} cannot be listed",
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    return await ask_leaders(cluster, times, ask)


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Everything before these offsets goes; gives the new start of each log."""

    async def ask(connection: Connection, partitions: list[TopicPartition]) -> Outcomes[int]:
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
        answer = await connection.call(request, DeleteRecordsResponse)
        return {
            TopicPartition(topic.name, one.partition_index): one.low_watermark
            if one.error_code == 0
            else error_of(
                one.error_code, f"records of {topic.name}-{one.partition_index} cannot be deleted"
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    return await ask_leaders(cluster, before, ask)
