"""Log directories of brokers and the replicas in them (DescribeLogDirs, AlterReplicaLogDirs)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.errors import check, error_of
from penstock.client.routing import by_topic
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from penstock.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

_Dir = AlterReplicaLogDirsRequest.Dir


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A future replica is the copy of a replica that moves to another directory."""

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirInfo:
    """`error_code` is not 0 if the directory is offline."""

    path: str
    error_code: int
    is_cordoned: bool
    replicas: Mapping[TopicPartition, ReplicaInfo]


async def describe_log_dirs(
    cluster: Cluster, broker_id: int, partitions: Collection[TopicPartition] | None = None
) -> list[LogDirInfo]:
    """Return a broker's directories with these replicas or, without partitions, with all."""
    topics = None
    if partitions is not None:
        topics = tuple(
            DescribeLogDirsRequest.Topic(topic=name, partitions=tuple(indexes))
            for name, indexes in by_topic(partitions).items()
        )

    async def attempt() -> list[LogDirInfo]:
        response = await (await cluster.broker(broker_id)).call(
            DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse
        )
        check(response.error_code, f"DescribeLogDirs failed on broker {broker_id}")
        return [_log_dir(result) for result in response.results]

    return await cluster.retry(attempt)


def _log_dir(result: DescribeLogDirsResponse.Result) -> LogDirInfo:
    return LogDirInfo(
        result.log_dir,
        result.error_code,
        result.is_cordoned,
        {
            TopicPartition(topic.name, replica.partition_index): ReplicaInfo(
                replica.partition_size, replica.offset_lag, replica.is_future_key
            )
            for topic in result.topics
            for replica in topic.partitions
        },
    )


async def alter_replica_log_dirs(
    cluster: Cluster, broker_id: int, paths: Mapping[TopicPartition, str]
) -> dict[TopicPartition, KafkaError | None]:
    """Move replicas of a broker to other directories of it; return each one's error or None."""
    by_path: dict[str, list[TopicPartition]] = {}
    for partition, path in paths.items():
        by_path.setdefault(path, []).append(partition)
    request = AlterReplicaLogDirsRequest(
        dirs=tuple(
            _Dir(
                path=path,
                topics=tuple(
                    _Dir.Topic(name=name, partitions=tuple(indexes))
                    for name, indexes in by_topic(partitions).items()
                ),
            )
            for path, partitions in by_path.items()
        )
    )

    async def attempt() -> dict[TopicPartition, KafkaError | None]:
        response = await (await cluster.broker(broker_id)).call(
            request, AlterReplicaLogDirsResponse
        )
        return {
            TopicPartition(result.topic_name, partition.partition_index): error_of(
                partition.error_code,
                f"the replica {result.topic_name}-{partition.partition_index} of broker "
                f"{broker_id} was not moved",
            )
            if partition.error_code
            else None
            for result in response.results
            for partition in result.partitions
        }

    return await cluster.retry(attempt)
