"""The current assignments and log directories of partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.cli.kafka.reassign_partitions.json_files import ReassignmentError, Replica
from penstock.cli.kafka.reassign_partitions.log_dirs import replica_log_dirs
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.reassignments import PartitionReassignment
    from penstock.client.client import Client

Ongoing = Mapping[TopicPartition, "PartitionReassignment"]


async def read_assignments(
    client: Client, topics: Collection[str]
) -> dict[TopicPartition, tuple[int, ...]]:
    try:
        described = await client.admin.describe_topics(topics)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        known = set(await client.admin.list_topics())
        missing = next((name for name in topics if name not in known), "")
        raise unknown(f"Topic {missing} not found.") from error
    return {
        TopicPartition(topic.name, info.index): info.replicas
        for topic in described
        for info in topic.partitions
    }


def unknown(reason: str) -> ReassignmentError:
    return ReassignmentError(
        f"org.apache.kafka.common.errors.UnknownTopicOrPartitionException: {reason}"
    )


async def current_log_dirs(
    client: Client, assignments: Mapping[TopicPartition, Sequence[int]]
) -> dict[Replica, str]:
    replicas = [
        Replica(broker, partition) for partition, ids in assignments.items() for broker in ids
    ]
    return {
        replica: directories.current
        for replica, directories in (await replica_log_dirs(client, replicas)).items()
        if directories.current is not None
    }


def ids_text(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))
