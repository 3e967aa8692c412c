"""Requests to brokers that skip what fails: a partition or a broker that does not answer leaves the
others as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.client.offsets import IsolationLevel
from penstock.client.routing import by_topic
from penstock.errors import ErrorCode, KafkaError
from penstock.health.observations import BrokerDefaults, LogDir
from penstock.ids import TopicPartition
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from penstock.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

# Bounds of one request, so that no broker works for long at a time.
_PARTITIONS_A_REQUEST = 2_000
_TOPICS_A_REQUEST = 500

_TOPIC, _BROKER = 2, 4
_DYNAMIC_TOPIC = 1
_MIN_INSYNC, _UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
# Settings that someone who creates a topic on purpose is likely to set.
_TOPIC_KEYS = (_MIN_INSYNC, _UNCLEAN, "retention.ms", "retention.bytes", "cleanup.policy")
_AUTO_CREATE, _PARTITIONS = "auto.create.topics.enable", "num.partitions"
_FACTOR = "default.replication.factor"

Leaders = Mapping[TopicPartition, int]


class TopicSettings(NamedTuple):
    min_insync: int
    unclean_election: bool
    has_own_configs: bool


async def list_offsets(
    cluster: Cluster,
    leaders: Leaders,
    timestamp: int,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Return the offsets of the partitions whose leaders answer; a request per leader at a time."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition, leader in leaders.items():
        by_leader.setdefault(leader, []).append(partition)
    found: dict[TopicPartition, int] = {}

    async def of_leader(leader: int, partitions: Sequence[TopicPartition]) -> None:
        for start in range(0, len(partitions), _PARTITIONS_A_REQUEST):
            part = partitions[start : start + _PARTITIONS_A_REQUEST]
            request = _offsets_request(part, timestamp, isolation)
            try:
                response = await (await cluster.broker(leader)).call(request, ListOffsetsResponse)
            except KafkaError:
                return
            for topic in response.topics:
                for result in topic.partitions:
                    if result.error_code == 0:
                        name = TopicPartition(topic.name, result.partition_index)
                        found[name] = result.offset

    await asyncio.gather(*(of_leader(leader, led) for leader, led in by_leader.items()))
    return found


def _offsets_request(
    partitions: Collection[TopicPartition], timestamp: int, isolation: IsolationLevel
) -> ListOffsetsRequest:
    part = ListOffsetsRequest.Topic.Partition
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=tuple(
            ListOffsetsRequest.Topic(
                name=topic,
                partitions=tuple(
                    part(partition_index=index, timestamp=timestamp) for index in indexes
                ),
            )
            for topic, indexes in by_topic(partitions).items()
        ),
    )


async def topic_settings(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicSettings]:
    """Return the settings of the topics that still exist."""
    found: dict[str, TopicSettings] = {}
    for start in range(0, len(names), _TOPICS_A_REQUEST):
        part = names[start : start + _TOPICS_A_REQUEST]
        request = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsRequest.Resource(
                    resource_type=_TOPIC, resource_name=name, configuration_keys=_TOPIC_KEYS
                )
                for name in part
            )
        )
        response = await cluster.call(request, DescribeConfigsResponse)
        for result in response.results:
            values = {config.name: config.value for config in result.configs}
            own = any(config.config_source == _DYNAMIC_TOPIC for config in result.configs)
            if result.error_code == 0 and values.get(_MIN_INSYNC):
                found[result.resource_name] = TopicSettings(
                    int(values[_MIN_INSYNC] or 1), values.get(_UNCLEAN) == "true", own
                )
    return found


async def broker_defaults(cluster: Cluster, broker_id: int) -> BrokerDefaults:
    request = DescribeConfigsRequest(
        resources=(
            DescribeConfigsRequest.Resource(
                resource_type=_BROKER,
                resource_name=str(broker_id),
                configuration_keys=(_AUTO_CREATE, _PARTITIONS, _FACTOR),
            ),
        )
    )
    response = await (await cluster.broker(broker_id)).call(request, DescribeConfigsResponse)
    (result,) = response.results
    check(result.error_code, result.error_message or f"cannot describe broker {broker_id}")
    values = {config.name: config.value for config in result.configs}
    return BrokerDefaults(
        values.get(_AUTO_CREATE) == "true",
        int(values.get(_PARTITIONS) or 1),
        int(values.get(_FACTOR) or 1),
    )


async def log_dirs(
    cluster: Cluster, broker_id: int, partitions: Collection[TopicPartition]
) -> tuple[tuple[LogDir, ...], dict[TopicPartition, int]]:
    """Return a broker's directories, and the sizes of its replicas of these partitions."""
    request = DescribeLogDirsRequest(
        topics=tuple(
            DescribeLogDirsRequest.Topic(topic=name, partitions=tuple(indexes))
            for name, indexes in by_topic(partitions).items()
        )
    )
    response = await (await cluster.broker(broker_id)).call(request, DescribeLogDirsResponse)
    check(response.error_code, f"DescribeLogDirs failed on broker {broker_id}")
    directories = tuple(
        LogDir(
            result.log_dir,
            _name_of(result.error_code) if result.error_code else "",
            result.is_cordoned,
            result.total_bytes if result.total_bytes >= 0 else None,
            result.usable_bytes if result.usable_bytes >= 0 else None,
        )
        for result in response.results
    )
    sizes = {
        TopicPartition(topic.name, replica.partition_index): replica.partition_size
        for result in response.results
        for topic in result.topics
        for replica in topic.partitions
        if not replica.is_future_key
    }
    return directories, sizes


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
