"""Replication throttles of a reassignment: which replicas, and at which rate (KIP-73).

A throttle has two parts. Topic configs list the replicas that it applies to: on the leader's side
the sources of a move, on the follower's side its destinations. Broker configs have the rates.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.cluster import Cluster
from penstock.client.errors import ConnectionFailed, check
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.limits import MAX_STRING_BYTES
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER_THROTTLES = (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE)
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
TOPIC_THROTTLES = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

# All replicas of a topic. Those that are in sync are not throttled.
ALL_REPLICAS = "*"

# Topics of one request that describes or alters their throttles, and the bytes of their configs: an
# eighth of what the controller writes at once (MAX_METADATA_BATCH_BYTES).
TOPICS_A_REQUEST = 500
CONFIG_BYTES_A_REQUEST = 1024 * 1024

_SET, _DELETE = 0, 1
# Config -> value; None deletes it.
Changes = Mapping[str, str | None]
_Resource = IncrementalAlterConfigsRequest.Resource


class Route(NamedTuple):
    """The brokers that a partition is copied from and to."""

    sources: frozenset[int]
    destinations: frozenset[int]


def topic_throttles(routes: Mapping[TopicPartition, Route]) -> dict[str, dict[str, str]]:
    """Return the configs of each topic, as kafka-reassign-partitions.sh sets them. A list that is
    too long for a string of the protocol becomes `*`."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for (topic, index), route in routes.items():
        leaders.setdefault(topic, set()).update(f"{index}:{source}" for source in route.sources)
        followers.setdefault(topic, set()).update(
            f"{index}:{destination}" for destination in route.destinations - route.sources
        )
    return {
        topic: {
            LEADER_REPLICAS: _listed(leaders[topic]),
            FOLLOWER_REPLICAS: _listed(followers[topic]),
        }
        for topic in leaders
    }


def _listed(replicas: Iterable[str]) -> str:
    text = ",".join(sorted(replicas))
    return text if len(text) <= MAX_STRING_BYTES else ALL_REPLICAS


def route_brokers(routes: Iterable[Route]) -> set[int]:
    return {broker for route in routes for broker in route.sources | route.destinations}


async def throttle_topics(cluster: Cluster, configs: Mapping[str, Changes]) -> None:
    """Alter topic throttles. A topic that was deleted meanwhile needs none."""
    for topics in chunks_of_topics(configs):
        resources = [_resource(ConfigResourceType.TOPIC, name, configs[name]) for name in topics]
        await _alter(
            cluster, None, resources, ignored=frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        )


async def clear_topics(cluster: Cluster, topics: Iterable[str]) -> None:
    await throttle_topics(cluster, {name: dict.fromkeys(TOPIC_THROTTLES) for name in topics})


async def set_rate(cluster: Cluster, brokers: Iterable[int], bytes_per_second: int) -> None:
    """Set the rates at which leaders send and followers fetch throttled replicas."""
    rate = str(bytes_per_second)
    await alter_brokers(cluster, brokers, {LEADER_RATE: rate, FOLLOWER_RATE: rate})


async def set_log_dir_rate(cluster: Cluster, brokers: Iterable[int], bytes_per_second: int) -> None:
    await alter_brokers(cluster, brokers, {LOG_DIR_RATE: str(bytes_per_second)})


async def clear_brokers(
    cluster: Cluster, brokers: Iterable[int], names: Sequence[str] = BROKER_THROTTLES
) -> None:
    await alter_brokers(
        cluster,
        brokers,
        dict.fromkeys(names),
        ignored=frozenset({ErrorCode.BROKER_ID_NOT_REGISTERED}),
    )


async def find_throttled(cluster: Cluster, topics: Iterable[str]) -> list[str]:
    """Return those of the topics that have a throttle."""
    throttled = []
    for names in _chunks(topics, TOPICS_A_REQUEST):
        request = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsRequest.Resource(
                    resource_type=ConfigResourceType.TOPIC,
                    resource_name=name,
                    configuration_keys=TOPIC_THROTTLES,
                )
                for name in names
            )
        )

        async def attempt(request: DescribeConfigsRequest = request) -> DescribeConfigsResponse:
            return await cluster.call(request, DescribeConfigsResponse)

        response = await cluster.retry(attempt)
        throttled += [
            result.resource_name
            for result in response.results
            if any(config.value for config in result.configs)
        ]
    return throttled


async def alter_brokers(
    cluster: Cluster,
    brokers: Iterable[int],
    changes: Changes,
    ignored: Collection[ErrorCode] = frozenset(),
) -> None:
    """Send a broker's configs to that broker, as Kafka's brokers require; those of a broker that is
    down to any other, which Penstock's accept."""
    await asyncio.gather(
        *(
            _alter(
                cluster,
                broker,
                [_resource(ConfigResourceType.BROKER, str(broker), changes)],
                ignored,
            )
            for broker in sorted(brokers)
        )
    )


def _resource(kind: ConfigResourceType, name: str, changes: Changes) -> _Resource:
    return _Resource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            _Resource.Config(
                name=config, config_operation=_DELETE if value is None else _SET, value=value
            )
            for config, value in changes.items()
        ),
    )


async def _alter(
    cluster: Cluster,
    broker: int | None,
    resources: Sequence[_Resource],
    ignored: Collection[ErrorCode],
) -> None:
    request = IncrementalAlterConfigsRequest(resources=tuple(resources))

    async def attempt() -> None:
        response = await _call(cluster, broker, request)
        for result in response.responses:
            if result.error_code not in ignored:
                check(
                    result.error_code,
                    result.error_message
                    or f"the throttle of {result.resource_name} was not altered",
                )

    await cluster.retry(attempt)


async def _call(
    cluster: Cluster, broker: int | None, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Send the request to a broker or, if there is none or it is down, to any other."""
    if broker in cluster.metadata.brokers:
        with contextlib.suppress(ConnectionFailed):
            connection = await cluster.broker(broker)
            return await connection.call(request, IncrementalAlterConfigsResponse)
    return await cluster.call(request, IncrementalAlterConfigsResponse)


def chunks_of_topics(configs: Mapping[str, Changes]) -> list[list[str]]:
    """Return the topics of each request that alters their configs."""
    chunks: list[list[str]] = []
    size = 0
    for topic, changes in configs.items():
        config_bytes = sum(len(value or "") for value in changes.values())
        size += config_bytes
        if not chunks or len(chunks[-1]) == TOPICS_A_REQUEST or size > CONFIG_BYTES_A_REQUEST:
            chunks.append([])
            size = config_bytes
        chunks[-1].append(topic)
    return chunks


def _chunks(items: Iterable[str], size: int) -> Iterator[list[str]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk
