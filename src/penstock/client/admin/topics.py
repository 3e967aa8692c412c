"""Topics with eligible leader replicas, in pages (DescribeTopicPartitions, KIP-966)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.client.metadata import PartitionInfo, TopicInfo, topic_error
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

Cursor = DescribeTopicPartitionsRequest.Cursor
TopicPage = DescribeTopicPartitionsResponse.Topic


async def describe_partitions(
    cluster: Cluster, names: Sequence[str], page_size: int
) -> list[TopicInfo]:
    """Return these topics or, without names, all topics, sorted by name.

    Falls back to Metadata, without eligible leader replicas, for brokers before KIP-966.
    """
    try:
        return await cluster.retry(lambda: _all_pages(cluster, names, page_size))
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
    return await cluster.retry(lambda: cluster.topics(list(names) or None))


async def _all_pages(cluster: Cluster, names: Sequence[str], page_size: int) -> list[TopicInfo]:
    requested = tuple(DescribeTopicPartitionsRequest.Topic(name=name) for name in sorted(names))
    topics: dict[str, TopicInfo] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=requested, response_partition_limit=page_size, cursor=cursor
        )
        response = await cluster.call(request, DescribeTopicPartitionsResponse)
        for page in response.topics:
            _add(topics, page)
        following = response.next_cursor
        if following is None:
            return [topics[name] for name in sorted(topics)]
        position = (following.topic_name, following.partition_index)
        if cursor is not None and position <= (cursor.topic_name, cursor.partition_index):
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the broker's cursor of DescribeTopicPartitions does not advance past {position}",
            )
        cursor = Cursor(topic_name=following.topic_name, partition_index=following.partition_index)


def _add(topics: dict[str, TopicInfo], page: TopicPage) -> None:
    """Append a page's partitions to those of the topic's earlier pages."""
    name = page.name or ""
    check(page.error_code, topic_error(name, page.error_code))
    topic = topics.get(name) or TopicInfo(name, page.topic_id, page.is_internal, ())
    partitions = (_partition_info(partition) for partition in page.partitions)
    topics[name] = replace(topic, partitions=(*topic.partitions, *partitions))


def _partition_info(partition: TopicPage.Partition) -> PartitionInfo:
    return PartitionInfo(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        partition.replica_nodes,
        partition.isr_nodes,
        partition.offline_replicas,
        partition.eligible_leader_replicas,
        partition.last_known_elr,
    )
