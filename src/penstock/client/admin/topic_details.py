"""Topics with all that is known of their partitions, eligible leader replicas included (KIP-966),
asked for page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.client.cluster import Cluster
from penstock.client.faults import check
from penstock.client.metadata import PartitionInfo, TopicInfo, absence
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

Cursor = DescribeTopicPartitionsRequest.Cursor
Described = DescribeTopicPartitionsResponse.Topic


async def describe_partitions(
    cluster: Cluster, names: Sequence[str], page_size: int
) -> list[TopicInfo]:
    """These topics or, without names, all of them; sorted by name. A broker from before KIP-966
    knows no eligible leader replicas."""
    try:
        return await cluster.retry(lambda: _all_pages(cluster, names, page_size))
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
    return await cluster.retry(lambda: cluster.topics(list(names) or None))


async def _all_pages(cluster: Cluster, names: Sequence[str], page_size: int) -> list[TopicInfo]:
    asked = tuple(DescribeTopicPartitionsRequest.Topic(name=name) for name in sorted(names))
    found: dict[str, TopicInfo] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=asked, response_partition_limit=page_size, cursor=cursor
        )
        answer = await cluster.call(request, DescribeTopicPartitionsResponse)
        for topic in answer.topics:
            _take(found, topic)
        following = answer.next_cursor
        if following is None:
            return [found[name] for name in sorted(found)]
        place = (following.topic_name, following.partition_index)
        if cursor is not None and place <= (cursor.topic_name, cursor.partition_index):
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the broker's list of partitions does not go on from {place}",
            )
        cursor = Cursor(topic_name=following.topic_name, partition_index=following.partition_index)


def _take(found: dict[str, TopicInfo], topic: Described) -> None:
    name = topic.name or ""
    check(topic.error_code, f"topic {name} {absence(topic.error_code)}")
    partitions = tuple(_partition(one) for one in topic.partitions)
    begun = found.get(name)
    whole = partitions if begun is None else (*begun.partitions, *partitions)
    found[name] = replace(
        begun or TopicInfo(name, topic.topic_id, topic.is_internal, ()), partitions=whole
    )


def _partition(one: Described.Partition) -> PartitionInfo:
    return PartitionInfo(
        one.partition_index,
        one.leader_id,
        one.leader_epoch,
        one.replica_nodes,
        one.isr_nodes,
        one.offline_replicas,
        one.eligible_leader_replicas,
        one.last_known_elr,
    )
